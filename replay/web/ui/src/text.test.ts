import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, clip, command, decode, flat, stretches } from "./text";

test("text that shows as nothing or steers is escaped", () => {
  const cases: [string, string][] = [
    ["plain", "plain"],
    ["", ""],
    ["a\u202eb", "a<U+202E>b"],
    ["\u2066x\u2069", "<U+2066>x<U+2069>"],
    ["zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"],
    ["\u001b[31mred", "<U+001B>[31mred"],
    ["one\ntwo\tthree\r", "one\\ntwo\\tthree\\r"],
    ["\u00a0\u3000\u2028", "<U+00A0><U+3000><U+2028>"],
    ["\u3164\u115f\uffa0\u2800", "<U+3164><U+115F><U+FFA0><U+2800>"],
    ["\u{e0041}\u{e0100}\ufe0f", "<U+E0041><U+E0100><U+FE0F>"],
    ["\u0085\u009b1m", "<U+0085><U+009B>1m"],
    ["<b>\"&'", "<b>\"&'"],
    ["grün 漢字 🙂", "grün 漢字 🙂"],
    ["\u00ad", "<U+00AD>"],
    ["\ue000", "<U+E000>"],
    ["\u061c", "<U+061C>"],
  ];
  for (const [text, want] of cases) assert.equal(flat(text), want);
  assert.equal(flat("one\ntwo\t\u0007", true), "one\ntwo\t<U+0007>");
});

test("an escape is marked, the same characters in the text are not", () => {
  assert.deepEqual(stretches("<U+202E>"), [{ text: "<U+202E>", escape: false }]);
  assert.deepEqual(stretches("\u202e"), [{ text: "<U+202E>", escape: true }]);
});

test("bytes that are not UTF-8 are shown as bytes", () => {
  const base64 = (...b: number[]) => ({ base64: Buffer.from(b).toString("base64") });
  assert.equal(flat(base64(0x61, 0xff, 0x62)), "a<0xFF>b");
  assert.equal(flat(base64(0xc3, 0xbc, 0xc3)), "ü<0xC3>");
  assert.equal(flat(base64(0xf0, 0x9f, 0x99, 0x82, 0x80)), "🙂<0x80>");
  assert.equal(flat(base64(0xed, 0xa0, 0x80)), "<0xED><0xA0><0x80>"); // a surrogate is not UTF-8
  assert.equal(flat(base64(0xc0, 0xaf)), "<0xC0><0xAF>"); // nor is an overlong slash
  assert.equal(decode({ base64: "%%%" }), "");
  assert.equal(decode(undefined), "");
});

test("clip never leaves half a character", () => {
  assert.deepEqual(clip("ab🙂", 3), { text: "ab", cut: true });
  assert.deepEqual(clip("ab🙂", 4), { text: "ab🙂", cut: false });
});

test("command quotes as a shell needs it", () => {
  assert.equal(command(["sh", "-c", "echo 'hi'"]), "sh -c 'echo '\\''hi'\\'''");
  assert.equal(command(["a", ""]), "a ''");
  assert.equal(command(null), "");
});

test("bytes", () => {
  assert.equal(bytes(1023), "1023 B");
  assert.equal(bytes(1024), "1.0 KiB");
  assert.equal(bytes(10 * 1024 * 1024), "10 MiB");
});
