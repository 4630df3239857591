import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, full, nanos, offsetText, parse, parseOffset, since, span, stamp, whole } from "./time";

test("nanoseconds survive", () => {
  assert.equal(nanos("2026-11-21T10:00:00.123456789Z"), 1795255200123456789n);
  assert.equal(since("2026-11-21T10:00:00.000000002Z", "2026-11-21T10:00:00.000000001Z"), 1e-6);
  assert.equal(since("2026-11-21T10:00:01Z", "2026-11-21T10:00:00.5Z"), 500);
  assert.equal(since("2026-11-21T11:00:00+01:00", "2026-11-21T10:00:00Z"), 0);
  assert.ok(Number.isNaN(parse("yesterday")));
  assert.equal(full("2026-11-21T10:00:00.1Z", "utc"), "2026-11-21T10:00:00.100000000Z");
});

test("clock and stamp", () => {
  const ms = Date.UTC(2026, 10, 21, 9, 5, 7, 42) + 0.9;
  assert.equal(clock(ms, "utc"), "09:05:07.042");
  assert.equal(clock(ms, "utc", 0), "09:05:07");
  assert.equal(stamp(ms, "utc", 1), "2026-11-21 09:05:07.0");
});

test("offsets go out and come back", () => {
  for (const [ms, text] of [[0, "+0.000000s"], [1234.567, "+1.234567s"], [60000, "+60.000000s"], [999.9999, "+1.000000s"]] as const) {
    assert.equal(offsetText(ms), text);
  }
  const began = "2026-11-21T10:00:00Z";
  assert.equal(parseOffset("+1.234567s", began), 1234.567);
  assert.equal(parseOffset("+1m2.5s", began), 62500);
  assert.equal(parseOffset("+5ms", began), 5);
  assert.equal(parseOffset("2026-11-21T10:00:03Z", began), 3000);
  for (const bad of ["+", "+5", "+-5s", "x", "+1s2"]) assert.ok(Number.isNaN(parseOffset(bad, began)), bad);
});

test("spans", () => {
  for (const [ms, text] of [[0.34, "340 µs"], [5.25, "5.3 ms"], [12, "12 ms"], [1230, "1.23 s"], [61000, "1 min 1 s"], [3_660_000, "1 h 1 min"]] as const) {
    assert.equal(span(ms), text);
  }
});

test("whole seconds", () => {
  assert.deepEqual([-5, 499, 12_345, 59_600, 123_400, 3_600_000].map(whole), ["0 s", "0 s", "12 s", "1 min 0 s", "2 min 3 s", "1 h 0 min"]);
});
