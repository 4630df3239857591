// Bytes, and the encodings of them that proofs are written in. Decoders take the one form
// that an encoder makes and nothing else: what reads two ways proves nothing.

/** A part of a proof that does not have the form it must have. */
export class Malformed extends Error {}

export type Bytes = Uint8Array<ArrayBuffer>;

export function utf8(text: string): Bytes {
  return new TextEncoder().encode(text);
}

/** Text of bytes that must be UTF-8. A byte order mark stays what it is. */
export function fromUtf8(bytes: Bytes, what: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed(`${what} is not UTF-8`);
  }
}

export function concat(...parts: Bytes[]): Bytes {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}

export function equal(a: Bytes, b: Bytes): boolean {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

export function hex(bytes: Bytes): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Bytes of lower-case hex, `length` of them. */
export function fromHex(text: unknown, length: number, what: string): Bytes {
  if (typeof text !== "string" || text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) {
    throw new Malformed(`${what} is not ${length} bytes in lower-case hex`);
  }
  return Uint8Array.from({ length }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export function base64(bytes: Bytes): string {
  let s = "";
  for (let i = 0; i < bytes.length; i += 0x8000) s += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(s);
}

/** Bytes of standard base64 with padding, in the one form that an encoder gives it. */
export function fromBase64(text: unknown, what: string): Bytes {
  if (typeof text !== "string" || !/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) {
    throw new Malformed(`${what} is not base64`);
  }
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (base64(raw) !== text) throw new Malformed(`${what} is not base64 in its one form`);
  return raw;
}

/** A whole number that JavaScript can count to exactly, 0 or greater. */
export function count(n: unknown, what: string): number {
  if (typeof n !== "number" || !Number.isSafeInteger(n) || n < 0) throw new Malformed(`${what} is not a number`);
  return n;
}

/** A number in decimal without leading zeros. */
export function parseCount(text: string | undefined, what: string): number {
  if (text === undefined || !/^(0|[1-9][0-9]{0,15})$/.test(text)) throw new Malformed(`${what} is not a number`);
  return count(Number(text), what);
}

/** SHA-256 by WebCrypto, which browsers have on https and on loopback addresses only. */
export async function sha256(...parts: Bytes[]): Promise<Bytes> {
  if (!globalThis.crypto?.subtle) throw new Error("the browser gives this page no cryptography: open it over https, or from this machine");
  return new Uint8Array(await crypto.subtle.digest("SHA-256", concat(...parts)));
}
