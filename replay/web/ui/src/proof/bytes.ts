// Bytes, and the encodings of them that proofs are written in. Decoders take the one form
// that an encoder makes and nothing else: what reads two ways proves nothing.

/** A part of a proof that does not have the form it must have. */
export class Malformed extends Error {}

export type Bytes = Uint8Array<ArrayBuffer>;

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Text of bytes that must be UTF-8. A byte order mark stays what it is. */
export function fromUtf8(bytes: Bytes, what: string): string {
  try {
    return decoder.decode(bytes);
  } catch {
    throw new Malformed(`${what} is not UTF-8`);
  }
}

export function concat(...parts: Bytes[]): Bytes {
  return join(parts);
}

/** What concat does, of more parts than a call has room for as arguments. */
export function join(parts: readonly Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

export function equal(a: Bytes, b: Bytes): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const digits = Array.from({ length: 256 }, (_, b) => b.toString(16).padStart(2, "0"));

export function hex(bytes: Bytes): string {
  let s = "";
  for (const b of bytes) s += digits[b];
  return s;
}

/** Bytes of hex, which the caller has checked. */
export function fromHex(text: string): Bytes {
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

/** A digest as JSON has it: the empty string is 32 zero bytes. */
export function fromDigest(text: string): Bytes {
  return text === "" ? new Uint8Array(32) : fromHex(text);
}

export function base64(bytes: Bytes): string {
  return btoa(latin1(bytes));
}

/** Bytes of standard base64 with padding, in the one form that an encoder gives it. */
export function fromBase64(text: string, what: string): Bytes {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) {
    throw new Malformed(`${what} is not base64`);
  }
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (base64(raw) !== text) throw new Malformed(`${what} is not base64 in its one form`);
  return raw;
}

/** Bytes as characters, each of its own number: text that is compared byte by byte. */
export function latin1(bytes: Bytes): string {
  let s = "";
  for (let i = 0; i < bytes.length; i += 0x8000) s += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return s;
}
