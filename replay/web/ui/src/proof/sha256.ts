// SHA-256 (FIPS 180-4). The browser's own answers later and costs some microseconds a call, which a bundle with a
// hundred thousand small frames cannot wait for; digest takes it for what is large.

import type { Bytes } from "./bytes";

const k = constants(64, 1 / 3);
const start = constants(8, 1 / 2);
const w = new Int32Array(64);
const last = new Uint8Array(128); // what does not fill a block, and the padding

/** The first 32 bits of the fractions of the first n primes' roots. */
function constants(n: number, power: number): Int32Array {
  const all = new Int32Array(n);
  for (let p = 2, i = 0; i < n; p++) {
    let prime = true;
    for (let d = 2; d * d <= p; d++) prime &&= p % d !== 0;
    if (prime) all[i++] = (p ** power % 1) * 2 ** 32;
  }
  return all;
}

/** SHA-256 of bytes. */
export function sha256(data: Bytes): Bytes {
  const h = start.slice();
  const whole = data.length & ~63;
  for (let at = 0; at < whole; at += 64) block(h, data, at);
  const rest = data.length - whole;
  const end = rest < 56 ? 64 : 128;
  last.fill(0);
  last.set(data.subarray(whole));
  last[rest] = 0x80;
  const bits = new DataView(last.buffer);
  bits.setUint32(end - 8, Math.floor(data.length / 2 ** 29));
  bits.setUint32(end - 4, data.length << 3);
  for (let at = 0; at < end; at += 64) block(h, last, at);
  const sum = new Uint8Array(32);
  const out = new DataView(sum.buffer);
  for (let i = 0; i < 8; i++) out.setInt32(4 * i, h[i]!);
  return sum;
}

function block(h: Int32Array, data: Uint8Array, at: number): void {
  for (let i = 0; i < 16; i++, at += 4) w[i] = (data[at]! << 24) | (data[at + 1]! << 16) | (data[at + 2]! << 8) | data[at + 3]!;
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15]!, y = w[i - 2]!;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
  }
  let a = h[0]!, b = h[1]!, c = h[2]!, d = h[3]!, e = h[4]!, f = h[5]!, g = h[6]!, z = h[7]!;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (z + s1 + ((e & f) ^ (~e & g)) + k[i]! + w[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    z = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  h[0] = h[0]! + a; h[1] = h[1]! + b; h[2] = h[2]! + c; h[3] = h[3]! + d;
  h[4] = h[4]! + e; h[5] = h[5]! + f; h[6] = h[6]! + g; h[7] = h[7]! + z;
}

/** SHA-256 of bytes that may be many. */
export async function digest(data: Bytes): Promise<Bytes> {
  if (data.length < 1 << 20 || !globalThis.crypto?.subtle) return sha256(data);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}
