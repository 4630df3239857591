import assert from "node:assert/strict";
import { test } from "node:test";
import { timelineAt } from "./commands";
import { fieldsOf, payloadName } from "./fields";
import { kinds } from "../types";

test("no field of a record is left out, known or not", () => {
  for (const kind of kinds) {
    const name = payloadName(kind);
    const payload = { reason: "r", size: 1, argv: ["a"], verdict: "allow", another: { deep: [1] } };
    const record = { v: 1, run: "r-1", seq: 1, time: "2026-01-01T00:00:00Z", observer: "host", kind, step: "main", [name]: payload, beside: 7 };
    const fields = fieldsOf(record);
    assert.deepEqual(fields.map((f) => f.name).sort(), [...Object.keys(payload).map((k) => `${name}.${k}`), "beside"].sort(), kind);
    assert.deepEqual(Object.fromEntries(fields.map((f) => [f.name.replace(`${name}.`, ""), f.value])), { ...payload, beside: 7 });
    for (const f of fields) assert.ok(f.label);
  }
});

test("a payload that is none of its kind is no error", () => {
  for (const payload of [undefined, null, 1, "text", [1]]) assert.deepEqual(fieldsOf({ kind: "exec", exec: payload }), []);
});

test("commands are quoted for a shell", () => {
  assert.equal(timelineAt("r-1", "+1.5s"), "custody timeline r-1 --at +1.5s");
  assert.equal(timelineAt("r-1; rm -rf /", "it's"), "custody timeline 'r-1; rm -rf /' --at 'it'\\''s'");
});
