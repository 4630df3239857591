import assert from "node:assert/strict";
import { test } from "node:test";
import { hex, join, utf8 } from "./bytes";
import { crc32c } from "./crc32c";
import { instant } from "./instant";
import { continues, included, leafHash, nodeHash, rootOf } from "./merkle";
import { digest, sha256 } from "./sha256";

test("SHA-256 is WebCrypto's", async () => {
  for (const n of [...Array(200).keys(), 1000, 65535, 1 << 20, (1 << 20) + 77]) {
    const data = Uint8Array.from({ length: n }, (_, i) => (i * i + n) >> 3);
    const want = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", data)));
    assert.equal(hex(sha256(data)), want, `${n} bytes`);
    assert.equal(hex(await digest(data)), want);
    assert.equal(hex(sha256(new Uint8Array([7, ...data.subarray(0, 100)]).subarray(1))), hex(sha256(data.slice(0, 100))));
  }
});

test("CRC-32C", () => {
  const data = utf8("12345--6789");
  assert.equal(crc32c(data, 0, 5, 7, 11), 0xe3069283); // the check value of "123456789"
  assert.equal(crc32c(data, 0, 0, 0, 0), 0);
});

test("times have one form", () => {
  assert.equal(instant("1970-01-01T00:00:01.000000002Z"), 1_000_000_002n);
  assert.equal(instant("2024-02-29T00:00:00Z"), 1_709_164_800n * 1_000_000_000n);
  assert.equal(instant("0001-01-01T00:00:00Z"), -62_135_596_800n * 1_000_000_000n);
  for (const bad of ["", "2025-02-29T00:00:00Z", "2025-13-01T00:00:00Z", "2025-01-01T24:00:00Z", "2025-01-01T00:60:00Z", "2025-01-01T00:00:60Z", "0000-01-01T00:00:00Z",
    "2025-01-01T00:00:00.10Z", "2025-01-01T00:00:00.Z", "2025-01-01T00:00:00,5Z", "2025-01-01T00:00:00.1234567891Z", "2025-01-01T00:00:00+00:00", "2025-01-01t00:00:00z",
    "10000-01-01T00:00:00Z", "2025-01-01T00:00:00Z\n", "２025-01-01T00:00:00Z"]) {
    assert.throws(() => instant(bad), bad);
  }
});

// The proofs of RFC 6962, sections 2.1.1 and 2.1.2, from their definitions.
type Hash = Uint8Array<ArrayBuffer>;
const half = (n: number) => 2 ** Math.ceil(Math.log2(n) - 1);
const tree = (d: Hash[]): Hash => (d.length < 2 ? d[0] ?? sha256(new Uint8Array(0)) : nodeHash(tree(d.slice(0, half(d.length))), tree(d.slice(half(d.length)))));

function path(m: number, d: Hash[]): Hash[] {
  if (d.length < 2) return [];
  const k = half(d.length);
  return m < k ? [...path(m, d.slice(0, k)), tree(d.slice(k))] : [...path(m - k, d.slice(k)), tree(d.slice(0, k))];
}

function growth(m: number, d: Hash[], whole: boolean): Hash[] {
  if (m === d.length) return whole ? [] : [tree(d)];
  const k = half(d.length);
  return m <= k ? [...growth(m, d.slice(0, k), whole), tree(d.slice(k))] : [...growth(m - k, d.slice(k), false), tree(d.slice(0, k))];
}

test("trees up to 17 leaves", () => {
  const leaves = Array.from({ length: 17 }, (_, i) => leafHash(new Uint8Array([i])));
  const other = leafHash(utf8("other"));
  for (let n = 0; n <= leaves.length; n++) {
    const d = leaves.slice(0, n);
    const root = tree(d);
    assert.deepEqual(rootOf(d), root, `${n} leaves`);
    for (let m = 0; m < n; m++) {
      const p = path(m, d);
      for (let i = 0; i <= n; i++) assert.equal(included(leaves[m]!, BigInt(i), BigInt(n), p, root), i === m, `leaf ${m} at ${i} of ${n}`);
      assert.ok(!included(leaves[m]!, BigInt(m), BigInt(n), [...p, other], root));
      assert.ok(!included(other, BigInt(m), BigInt(n), p, root));
    }
    for (let m = 1; m <= n; m++) {
      const p = m === n ? [] : growth(m, d, true);
      const old = tree(d.slice(0, m));
      assert.ok(continues(BigInt(m), BigInt(n), p, old, root), `${m} to ${n}`);
      assert.ok(!continues(BigInt(m), BigInt(n), [...p, other], old, root));
      assert.ok(!continues(BigInt(m), BigInt(n), p, other, root));
      assert.ok(!continues(BigInt(m), BigInt(n), p, old, other));
      assert.ok(p.length === 0 || !continues(BigInt(m), BigInt(n), p.slice(1), old, root));
    }
  }
});

test("as many parts are joined as a run has records", () => {
  const parts = Array.from({ length: 500_000 }, (_, i) => new Uint8Array([i & 255]));
  const all = join(parts);
  assert.equal(all.length, parts.length);
  assert.equal(all.at(-1), (parts.length - 1) & 255);
});
