import assert from "node:assert/strict";
import { test } from "node:test";
import { readMoment } from "./moment";

const run = { began: "2026-11-20T14:31:00.500Z", end: Date.parse("2026-11-20T14:33:00Z") };

test("times that lie in the run", () => {
  for (const [text, ms] of [
    ["14:32:07", 66500], [" 14:32:07 ", 66500], ["14:32:07.25", 66750], ["14:32:07,25", 66750], ["14:32", 59500], ["14:32:07Z", 66500], ["14:32:07 UTC", 66500],
    ["15:32:07+01:00", 66500], ["15:32:07 +0100", 66500], ["2026-11-20T14:32:07Z", 66500], ["2026-11-20 14:32:07", 66500], ["2026-11-20T15:32:07.000000001+01:00", 66500.000001],
    ["14:31", 0], ["14:31:00", 0], ["2026-11-20", 0], ["+7s", 7000], ["+1m2.5s", 62500], ["14:33:00", 119500], ["00:32:07+10:00", 66500],
  ] as const) {
    const found = readMoment(text, "utc", run);
    assert.equal(found.error, undefined, text);
    assert.ok(Math.abs(found.ms! - ms) < 0.001, `${text}: ${found.ms}`);
  }
});

test("times of a run over midnight", () => {
  const night = { began: "2026-11-20T23:50:00Z", end: Date.parse("2026-11-21T23:55:00Z") };
  assert.equal(readMoment("00:10:00", "utc", night).ms, 20 * 60e3);
  assert.equal(readMoment("23:52:00", "utc", night).ms, 2 * 60e3); // the first of two
  assert.equal(readMoment("2026-11-21 23:52:00", "utc", night).ms, 2 * 60e3 + 864e5);
});

test("a time outside the run is refused with a reason", () => {
  for (const [text, why] of [
    ["", "Enter a time"], ["noon", '"noon" is not a time'], ["14:32:07 PM", "is not a time"], ["25:00", "hours end at 23"], ["14:61", "hours end at 23"],
    ["2026-02-30 14:32", "2026-02-30 is not a date"], ["2026-13-01", "is not a date"], ["20.11.2026", "is not a time"], ["14:20:00", "2026-11-20 14:20:00 is before the run"],
    ["14:33:01", "is after the run, which lasted from 2026-11-20 14:31:00.500 to 14:33:00.000 UTC"], ["2026-11-19 14:32:07", "before the run"], ["+1h", "after the run"],
    ["+", "Enter a time"], ["-5s", "is not a time"], ["Z", "is not a time"], ["14", "is not a time"], ["1532007", "is not a time"],
  ] as const) {
    const found = readMoment(text, "utc", run);
    assert.ok(found.error?.includes(why), `${text}: ${JSON.stringify(found)}`);
  }
});
