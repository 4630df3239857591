// Bundles are tar archives that can be written in one way only: each byte that is not content follows from names and sizes.

import { type Bytes, Malformed, equal, latin1, utf8 } from "./bytes";
import { attachable } from "./statements";

export interface Archive {
  /** By name, in byte order. */
  files: Map<string, Bytes>;
  /** Where the header of the last file begins. */
  trailer: number;
}

const block = 512;
const kib = 1 << 10;
const segment = (64 << 20) + (4 << 20) + kib;

/** How many files a bundle holds at most, and how many bytes in them. */
const most = { files: 5_000_000, bytes: 64 * 2 ** 30 };

const fixed: Record<string, number> = {
  "README.txt": 64 * kib, "host.pub": 64 * kib, "checkpoint.tsr": 64 * kib, checkpoint: 64 * kib, since: 64 * kib, consistency: 80 * kib,
  selection: 64 * kib, attachments: 64 * kib, trailer: 64 * kib,
};
const numbered: Record<string, number> = {
  seg: segment, leaves: segment, manifest: 64 * kib, erasure: 64 * kib, rotation: 64 * kib, host: 64 * kib, "tlog-proof": 80 * kib, "erasure.tlog-proof": 80 * kib,
  "rotation.tlog-proof": 80 * kib, witnessed: 80 * kib, "witnessed.tsr": 64 * kib, ancestor: 2 ** 33 - 1,
};

/** How long a file of that name may be, 0 if a bundle has none. */
function limit(name: string): number {
  const found = /^([0-9]{20})\.(.+)$/.exec(name);
  if (found && BigInt(found[1]!) < 1n << 64n) return Object.hasOwn(numbered, found[2]!) ? numbered[found[2]!]! : 0;
  if (Object.hasOwn(fixed, name)) return fixed[name]!;
  return attachable(name) ? 64 << 20 : 0;
}

/** The only header that a file of this name and size can have. */
function header(name: string, size: number): Bytes {
  const h = new Uint8Array(block);
  const put = (at: number, text: string) => h.set(utf8(text), at);
  put(0, name);
  put(100, "0000644\x000000000\x000000000\x00" + size.toString(8).padStart(11, "0") + "\x0000000000000\x00");
  put(148, "        0");
  put(257, "ustar\x0000");
  put(329, "0000000\x000000000\x00");
  put(148, h.reduce((sum, c) => sum + c, 0).toString(8).padStart(6, "0") + "\x00 ");
  return h;
}

/** Whether programs that read zip files find one at the end: the record that ends its directory, and a directory where that one says. */
function zipped(data: Bytes): boolean {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const has = (at: number, magic: number) => Math.max(at, 0) + 4 <= data.length && view.getUint32(Math.max(at, 0)) === magic;
  for (let at = Math.max(data.length - 128 * kib, 0); at + 22 <= data.length; at++) {
    if (view.getUint32(at) !== 0x504b0506) continue;
    const [length, offset] = [view.getUint32(at + 12, true), view.getUint32(at + 16, true)];
    if (has(at - length, 0x504b0102) || has(offset, 0x504b0102) || has(at - 20, 0x504b0607)) return true; // the last: of Zip64
  }
  return false;
}

const zero = (bytes: Bytes) => bytes.every((b) => b === 0);

/** Takes a bundle apart. The files share memory with data. */
export function unpack(data: Bytes): Archive {
  const files = new Map<string, Bytes>();
  let at = 0;
  let last = "";
  let trailer = 0;
  let total = 0;
  for (; at + block <= data.length && !zero(data.subarray(at, at + block)); ) {
    const h = data.subarray(at, at + block);
    const name = latin1(h.subarray(0, 100)).replace(/\0[^]*$/, "");
    const digits = latin1(h.subarray(124, 135));
    const longest = limit(name);
    if (longest === 0 || !/^[0-7]{11}$/.test(digits) || !equal(h, header(name, parseInt(digits, 8)))) {
      throw new Malformed(`it is no bundle: at byte ${at} is no header of a file that bundles have`);
    }
    const size = parseInt(digits, 8);
    const end = at + block + size;
    const next = end + ((block - (size % block)) % block);
    if (name <= last) throw new Malformed(`it is no bundle: ${name} comes after ${last}`);
    if (size > longest || next > data.length) throw new Malformed(`it is no bundle: ${name} is cut, or too long`);
    if (!zero(data.subarray(end, next))) throw new Malformed(`it is no bundle: what fills up the last block of ${name} is not zero`);
    files.set(name, data.subarray(at + block, end));
    total += size;
    if (files.size > most.files || total > most.bytes) throw new Malformed("it is no bundle: it holds too much");
    trailer = at;
    last = name;
    at = next;
  }
  if (zipped(data)) throw new Malformed("it is no bundle: it is a zip file as well");
  if (data.length !== at + 2 * block || !zero(data.subarray(at)) || last !== "trailer") throw new Malformed("it is no bundle: it does not end as bundles do");
  if (!files.has("README.txt") || !files.has("host.pub")) throw new Malformed("it is no bundle: README.txt or host.pub is missing");
  if (files.has("since") !== files.has("consistency")) throw new Malformed("it is no bundle: since and consistency go together");
  return { files, trailer };
}
