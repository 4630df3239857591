import assert from "node:assert/strict";
import { test } from "node:test";
import type { Item, Lanes } from "../types";
import { axisHeight, barTop, endOf, hit, holeText, instant, lasts, layout, needed, panned, place, summary, ticks, tickStep, under, zoomed } from "./geometry";

const item = (seq: number, at: number, more: Partial<Item> = {}): Item => ({
  seq, at, label: `item ${seq}`, kind: "exec", observer: "guest", mood: "plain", row: 0, ...more,
});
const data = (items: Item[]): Lanes => ({
  run: "r-1", began: "2026-11-21T10:00:00Z", from: 0, to: 1000, end: 1000, live: false, total: items.length,
  lanes: [
    { name: "steps", total: 0, items: [], buckets: [{ at: 100, width: 10, count: 7, denied: 0, findings: 0, seq: 3 }] },
    { name: "exec", total: items.length, items, buckets: [] },
  ],
  gaps: [{ seq: 9, from: 700, to: 710, what: "kernel ring", lost: 4, bytes: 0 }],
  freezes: [{ seq: 10, from: 800, to: 900, what: "disk full", lost: 0, bytes: 0 }],
});

test("place and instant undo each other", () => {
  const view = { from: 123.456, to: 7890.12 };
  for (const x of [-50, 0, 1, 333.3, 800]) {
    assert.ok(Math.abs(place(instant(x, view, 800), view, 800) - x) < 1e-6);
  }
});

test("zoom keeps the instant where it is, pan keeps the width", () => {
  const view = { from: 100, to: 300 };
  for (const about of [100, 150, 300]) {
    const z = zoomed(view, 0.5, about);
    assert.ok(Math.abs(place(about, view, 1000) - place(about, z, 1000)) < 1e-9);
    assert.equal(z.to - z.from, 100);
  }
  assert.deepEqual(panned(view, -20), { from: 80, to: 280 });
});

test("lanes do not overlap and bars stay inside", () => {
  const rows = new Map<string, number>();
  const items = Array.from({ length: 20 }, (_, i) => item(i + 1, i, { row: i, end: i + 5 }));
  const d = data(items);
  assert.ok(needed(rows, d.lanes));
  assert.ok(!needed(rows, d.lanes));
  assert.ok(!needed(rows, [{ name: "exec", total: 0, items: [], buckets: [] }]), "it never shrinks");
  const { lanes, height } = layout(["steps", "exec"], rows);
  assert.equal(lanes[0]!.top, axisHeight);
  assert.equal(lanes[1]!.top, lanes[0]!.top + lanes[0]!.height);
  assert.equal(height, lanes[1]!.top + lanes[1]!.height);
  for (const i of items) {
    const top = barTop(lanes[1]!, i);
    assert.ok(top >= lanes[1]!.top && top + lanes[1]!.bar <= lanes[1]!.top + lanes[1]!.height);
  }
});

test("ticks stand on round times and have room", () => {
  const began = Date.UTC(2026, 10, 21, 10, 0, 0, 250);
  for (const width of [0.01, 1, 37, 5_000, 60_000, 3.6e6, 9e8]) {
    const view = { from: 12.5, to: 12.5 + width };
    const step = tickStep(view, 1000);
    assert.ok((step / width) * 1000 >= 110 - 1e-6, `room at ${width}`);
    const list = ticks(view, 1000, began, "utc");
    assert.ok(list.length <= 10, `${list.length} ticks at ${width}`);
    for (const t of list) assert.ok(t.at >= view.from - 1e-6 && t.at <= view.to + 1e-6);
    assert.equal(new Set(list.map((t) => t.label)).size, list.length, `labels differ at ${width}: ${list.map((t) => t.label)}`);
  }
  assert.deepEqual(ticks({ from: 0, to: 5000 }, 600, began, "utc").map((t) => [t.at, t.label]), [[750, "10:00:01"], [1750, "10:00:02"], [2750, "10:00:03"], [3750, "10:00:04"], [4750, "10:00:05"]]);
});

test("what lasts, and until when", () => {
  assert.ok(!lasts(item(1, 5)));
  assert.ok(lasts(item(1, 5, { end: 6 })));
  assert.ok(lasts(item(1, 5, { open: true })));
  assert.equal(endOf(item(1, 5, { open: true }), 99), 99);
  assert.equal(endOf(item(1, 5), 99), 5);
});

test("hit finds the nearest, a point before the bar that it lies on, and buckets", () => {
  const d = data([item(1, 100, { end: 400 }), item(2, 250), item(3, 600)]);
  const { lanes } = layout(["steps", "exec"], new Map());
  const view = { from: 0, to: 1000 };
  const y = lanes[1]!.top + lanes[1]!.height / 2;
  assert.equal(hit(d, lanes, view, 1000, 250, y)?.item?.seq, 2);
  assert.equal(hit(d, lanes, view, 1000, 300, y)?.item?.seq, 1);
  assert.equal(hit(d, lanes, view, 1000, 603, y)?.item?.seq, 3);
  assert.equal(hit(d, lanes, view, 1000, 500, y), undefined);
  assert.equal(hit(d, lanes, view, 1000, 105, lanes[0]!.top + 2)?.bucket?.seq, 3);
  assert.equal(hit(d, lanes, view, 1000, 250, 5), undefined, "the axis");
  assert.equal(hit(d, lanes, view, 1000, 705, y)?.hole?.seq, 9);
  assert.equal(hit(d, lanes, view, 1000, 850, y)?.what, "Freeze");
  assert.equal(holeText(d.gaps[0]!, "Gap"), "4 records lost (kernel ring)");
  assert.equal(holeText({ ...d.gaps[0]!, seq: 0, lost: 1, bytes: 2048 }, "Gap"), "Undeclared gap: 1 record lost, 2.0 KiB of output lost (kernel ring)");
});

test("what is under the cursor, in words", () => {
  const d = data([item(1, 100, { end: 400 }), item(2, 250)]);
  assert.deepEqual(under(d, 252, 3).map((l) => l.items.map((i) => i.seq)), [[1, 2]]);
  assert.equal(summary(d, 252, 3), "2 processes");
  assert.equal(summary(d, 500, 3), "nothing here");
  assert.equal(summary(d, 705, 3), "a gap of the record (kernel ring)");
  assert.equal(summary(d, 850, 3), "the machine is frozen");
});
