import assert from "node:assert/strict";
import { test } from "node:test";
import { Tape, type Piece, window } from "./tape";

const all = { step: "", streams: new Set(["stdout", "stderr", "tty"]) };

function pieces(...list: [number, string, Partial<Piece>?][]): Piece[] {
  return list.map(([at, text, more], i) => ({ seq: i + 1, at, step: "main", stream: "stdout", text, ...more }));
}

test("what had been shown at an instant", () => {
  const t = new Tape(all);
  t.grow(pieces([10, "a"], [20, "b"], [20, "c"], [15, "d"], [30, "e"])); // d's clock went back: it comes after c all the same
  const shown = (at: number) => t.text(0, t.shownAt(at));
  for (const [at, want] of [[0, ""], [10, "a"], [19.9, "a"], [20, "abcd"], [30, "abcde"], [99, "abcde"]] as const) assert.equal(shown(at), want);
});

test("a selection", () => {
  const t = new Tape({ step: "two", streams: new Set(["stderr"]) });
  t.grow(pieces([1, "a"], [2, "b", { step: "two" }], [3, "c", { step: "two", stream: "stderr" }], [4, "d", { stream: "stderr" }]));
  assert.equal(t.text(0, t.shownAt(9)), "c");
});

test("a character that is cut between pieces, and bytes that are none", () => {
  const t = new Tape(all);
  t.grow(pieces([1, "", { text: { base64: btoa("\xe2\x82") } }], [2, "x", { stream: "stderr" }], [3, "", { text: { base64: btoa("\xac!") } }],
    [4, "", { text: { base64: btoa("\xff.") } }], [5, "", { text: { base64: "?" } }]));
  assert.equal(t.text(0, t.shownAt(9)), "x€!\ufffd.\ufffd");
});

test("going back feeds a bounded part, the same for the same instant", () => {
  const t = new Tape(all);
  const piece = "x".repeat(1000);
  t.grow(Array.from({ length: 5000 }, (_, i): Piece => ({ seq: i, at: i, step: "main", stream: "tty", text: piece })));
  for (const n of [0, 1, 500, 1048, 1049, 1573, 3000, 5000]) {
    const start = t.startFor(n);
    const fed = t.before(n) - t.before(start);
    assert.ok(fed <= 2 * window + piece.length, `${n}: ${fed}`);
    assert.ok(start === 0 || fed >= window, `${n}: ${fed}`);
    assert.equal(t.text(start, n).length, fed);
  }
});
