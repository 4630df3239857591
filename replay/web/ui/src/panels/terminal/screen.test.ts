import assert from "node:assert/strict";
import { test } from "node:test";
import { Screen, scrollback, rows, visible } from "./screen";

async function show(text: string, columns = 80): Promise<string[]> {
  const s = new Screen(columns, true);
  await s.feed(text);
  const lines = s.rows().map((r) => r.map((span) => span.text).join("").trimEnd());
  s.dispose();
  return lines;
}

test("text, colours and movement", async () => {
  assert.deepEqual(await show("one\ntwo\n"), ["one", "two"]);
  assert.deepEqual(await show("10%\r20%\r100%\n"), ["100%"]);
  assert.deepEqual(await show("\x1b[31mred\x1b[0m plain\x1b[2;5Hmoved"), ["red plain", "    moved"]);
  const s = new Screen(80, true);
  await s.feed("\x1b[1;31mred\x1b[0m \x1b[38;2;0;250;0mgreen\x1b[0m\x1b[48;5;231mx");
  assert.deepEqual(s.rows()[0]!.filter((x) => x.text.trim()).map((x) => x.look), ["t-f1 t-bold", "t-f10", "t-b15"]);
  s.dispose();
});

test("nothing but text comes out", async () => {
  const hostile = "\x1b]0;title\x07\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07\x1b]52;c;YWJj\x07\x1b[c\x1b[6n\x1b[21t\x1bP+q544e\x1b\\\x07!<b>\n";
  assert.deepEqual(await show(hostile), ["link!<b>"]);
});

test("characters that hide or turn text are made visible", async () => {
  assert.equal(visible("\u202e"), "·");
  assert.equal(visible("a\u200d"), "a·");
  assert.equal(visible("e\u0301"), "e\u0301");
  assert.equal(visible("a" + "\u0301".repeat(1000)).length, 1 + 8 + 1);
  for (const line of await show("a\u202eb\u2066c\u200bd\ufeffe\n")) assert.doesNotMatch(line, /[\u200b-\u206f\ufeff]/);
});

test("a repetition without end does nothing", async () => {
  for (const final of ["@", "I", "L", "M", "P", "S", "T", "X", "Z", "b", "E", "F", "A", "B", "C", "D", "e", "a", " @", " A", "'}", "'~"]) {
    assert.deepEqual(await show(`ab\x1b[2147483647${final}c`), ["abc"], final);
    assert.deepEqual(await show(`ab\x1b[1;2147483647${final}c`), ["abc"], final);
  }
});

test("old rows are forgotten, the screen is bounded", async () => {
  const many = await show(Array.from({ length: 5000 }, (_, i) => `line ${i}\n`).join(""));
  assert.ok(many.length <= rows + scrollback);
  assert.equal(many.at(-1), "line 4999");
  const wide = await show("x".repeat(1 << 20) + "\nend\n");
  assert.ok(wide.length <= rows + scrollback && wide.at(-1) === "end");
});

test("a sequence that is cut in two is one sequence", async () => {
  const s = new Screen(80, true);
  for (const c of "\x1b[32mgreen\x1b[0m") await s.feed(c);
  assert.deepEqual(s.rows(), [[{ text: "green", look: "t-f2" }]]);
  s.dispose();
});
