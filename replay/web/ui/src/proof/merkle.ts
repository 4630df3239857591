// Merkle trees of RFC 6962, section 2.1, and what proves that something is in one, or that one goes on from another.

import { type Bytes, concat, equal } from "./bytes";
import { sha256 } from "./sha256";

const leafPrefix = new Uint8Array([0]);

/** SHA-256(0x00 || data); of a record, data is its salt and then its exact bytes. */
export function leafHash(...data: Bytes[]): Bytes {
  return sha256(concat(leafPrefix, ...data));
}

export function nodeHash(left: Bytes, right: Bytes): Bytes {
  const both = new Uint8Array(65);
  both[0] = 1;
  both.set(left, 1);
  both.set(right, 33);
  return sha256(both);
}

/** The root over leaves. */
export function rootOf(leaves: readonly Bytes[]): Bytes {
  const roots: Bytes[] = []; // of the whole trees so far, largest first
  leaves.forEach((leaf, i) => {
    let hash = leaf;
    for (let n = i; n % 2 === 1; n = (n - 1) / 2) hash = nodeHash(roots.pop()!, hash);
    roots.push(hash);
  });
  return roots.length === 0 ? sha256(new Uint8Array(0)) : roots.reduceRight((right, left) => nodeHash(left, right));
}

/** Reports whether path proves that leaf is the one at index in the tree of that size and root (RFC 9162, section 2.1.3.2). */
export function included(leaf: Bytes, index: bigint, size: bigint, path: readonly Bytes[], root: Bytes): boolean {
  if (index >= size) return false;
  const up = climb(leaf, leaf, index, size - 1n, path);
  return up !== undefined && equal(up[1], root);
}

/** Reports whether path proves that the tree of size n and root now goes on from the one of size m and root old (section 2.1.4.2). */
export function continues(m: bigint, n: bigint, path: readonly Bytes[], old: Bytes, now: Bytes): boolean {
  if (m === n) return path.length === 0 && equal(old, now);
  if (m <= 0n || m > n || path.length === 0) return false;
  const all = (m & (m - 1n)) === 0n ? [old, ...path] : path; // a whole tree is in the new one as it is
  let node = m - 1n;
  let last = n - 1n;
  for (; node & 1n; node >>= 1n) last >>= 1n;
  const up = climb(all[0]!, all[0]!, node, last, all.slice(1));
  return up !== undefined && equal(up[0], old) && equal(up[1], now);
}

/** Goes up from a node; of the first hash only the hashes to its left are part. Undefined if the path has another length. */
function climb(a: Bytes, b: Bytes, node: bigint, last: bigint, path: readonly Bytes[]): [Bytes, Bytes] | undefined {
  for (const beside of path) {
    if (last === 0n) return undefined;
    if (node & 1n || node === last) {
      a = nodeHash(beside, a);
      b = nodeHash(beside, b);
      for (; !(node & 1n) && node !== 0n; node >>= 1n) last >>= 1n;
    } else {
      b = nodeHash(b, beside);
    }
    node >>= 1n;
    last >>= 1n;
  }
  return last === 0n ? [a, b] : undefined;
}
