import assert from "node:assert/strict";
import { test } from "node:test";
import { readTags, tagsOf } from "./notes";
import type { RunNote } from "./types";

test("tags are read as they are typed", () => {
  const cases: Record<string, string[] | undefined> = {
    "": [], " case-7, #Exfil  exfil": ["case-7", "exfil"], "a.b_c": ["a.b_c"], "-a": undefined, "a|b": undefined, "ä": undefined,
    [`x${"y".repeat(31)}`]: [`x${"y".repeat(31)}`], [`x${"y".repeat(32)}`]: undefined, "a b c d e f g h": [..."abcdefgh"], "a b c d e f g h i": undefined,
  };
  for (const [text, want] of Object.entries(cases)) {
    const got = readTags(text);
    assert.equal(got.error === undefined, want !== undefined, text);
    assert.deepEqual(got.tags, want ?? [], text);
  }
});

test("tags of withdrawn notes do not count", () => {
  const note = (tags: string[], withdrawn = false) => ({ tags, ...(withdrawn ? { withdrawn: { id: "a-1:7", time: "", who: "x", via: "token" } } : {}) }) as RunNote;
  assert.deepEqual(tagsOf([note(["b", "a"]), note(["c"], true), note(["a"])]), ["a", "b"]);
});
