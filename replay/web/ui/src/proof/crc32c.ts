// CRC-32C (Castagnoli), which frames have over their length and body.

const table = Int32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0x82f63b78 : n >>> 1;
  return n;
});

/** The checksum of the bytes from a to b and then those from c to d. */
export function crc32c(data: Uint8Array, a: number, b: number, c: number, d: number): number {
  let sum = -1;
  for (; a < b; a++) sum = table[(sum ^ data[a]!) & 255]! ^ (sum >>> 8);
  for (; c < d; c++) sum = table[(sum ^ data[c]!) & 255]! ^ (sum >>> 8);
  return ~sum >>> 0;
}
