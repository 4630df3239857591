import assert from "node:assert/strict";
import { test } from "node:test";
import type { Proc } from "../types";
import { processRows } from "./processrows";

const proc = (seq: number, parent_seq?: number) => ({ seq, parent_seq, pid: seq }) as Proc;
const all = [proc(1), proc(2, 1), proc(3, 2), proc(4, 1), proc(5, 99), proc(6, 6), proc(7, 8), proc(8)];
const shape = (rows: ReturnType<typeof processRows>) => rows.map((r) => `${" ".repeat(r.depth)}${r.p.seq}${r.found ? "" : "?"}`);

test("each below the one that started it", () => {
  assert.deepEqual(shape(processRows(all, new Set())), ["1", " 2", "  3", " 4", "5", "6", "7", "8"]);
});

test("what a folded one started is left out", () => {
  assert.deepEqual(shape(processRows(all, new Set([2]))), ["1", " 2", " 4", "5", "6", "7", "8"]);
});

test("a filter keeps the way to what was found, folded or not", () => {
  assert.deepEqual(shape(processRows(all, new Set([1]), (p) => p.seq === 3)), ["1?", " 2?", "  3"]);
  assert.deepEqual(processRows(all, new Set(), () => false), []);
});

test("a chain as long as a guest likes", () => {
  const chain = Array.from({ length: 50_000 }, (_, i) => proc(i + 1, i || undefined));
  assert.equal(processRows(chain, new Set()).at(-1)!.depth, 49_999);
});
