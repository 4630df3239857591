import assert from "node:assert/strict";
import { test } from "node:test";
import type { Item, Lanes } from "../types";
import { SeqIndex } from "./index";

const lanes = (pairs: [number, number][]): Lanes => ({
  run: "r", began: "", from: 0, to: 1, end: 1, live: false, total: 0, gaps: [], freezes: [],
  lanes: [{ name: "exec", total: 0, buckets: [], items: pairs.map(([at, seq]) => ({ at, seq }) as Item) }],
});

test("the last seq up to an instant", () => {
  const index = new SeqIndex([lanes([[30, 4], [10, 2], [20, 3], [25, 1]]), undefined], 100, 50);
  for (const [ms, want] of [[0, 1], [10, 2], [19, 2], [20, 3], [29, 3], [99, 4], [100, 50], [1000, 50]] as const) {
    assert.equal(index.seqAt(ms), want, `at ${ms}`);
  }
});

test("without lanes it guesses", () => {
  const index = new SeqIndex([], 100, 50);
  assert.equal(index.seqAt(50), 25);
  assert.equal(new SeqIndex([]).seqAt(5), 1);
});
