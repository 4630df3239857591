// Merkle trees of RFC 6962, section 2.1: the leaf of a record, and the proof that a leaf is in a tree.

import { type Bytes, equal, sha256 } from "./bytes";

const leafPrefix = new Uint8Array([0]);
const nodePrefix = new Uint8Array([1]);

/** SHA-256(0x00 || data); of a record, data is its salt and then its exact bytes. */
export function leafHash(...data: Bytes[]): Promise<Bytes> {
  return sha256(leafPrefix, ...data);
}

export function nodeHash(left: Bytes, right: Bytes): Promise<Bytes> {
  return sha256(nodePrefix, left, right);
}

/**
 * Says whether path proves that leaf is the one at index in the tree of that size and root
 * (the algorithm of RFC 9162, section 2.1.3.2). Numbers are beyond 32 bits, hence no shifts.
 */
export async function included(leaf: Bytes, index: number, size: number, path: Bytes[], root: Bytes): Promise<boolean> {
  if (index >= size) return false;
  let node = index;
  let last = size - 1;
  let hash = leaf;
  for (const beside of path) {
    if (last === 0) return false;
    if (node % 2 === 1 || node === last) {
      hash = await nodeHash(beside, hash);
      while (node % 2 === 0 && node !== 0) {
        node = half(node);
        last = half(last);
      }
    } else {
      hash = await nodeHash(hash, beside);
    }
    node = half(node);
    last = half(last);
  }
  return last === 0 && equal(hash, root);
}

function half(n: number): number {
  return Math.floor(n / 2);
}
