import { Malformed } from "./bytes";

const form = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d{0,8}[1-9]))?Z$/;

/** Nanoseconds since 1970 of a time in RFC 3339, UTC, in its one form; years 0001 to 9999. */
export function instant(text: string): bigint {
  const found = form.exec(text);
  const ms = found ? Date.parse(text.slice(0, 19) + "Z") : NaN;
  // A day that the month does not have becomes one of the next.
  if (!found || Number.isNaN(ms) || text.startsWith("0000") || new Date(ms).toISOString().slice(0, 19) !== text.slice(0, 19)) {
    throw new Malformed("it is no time in UTC");
  }
  return BigInt(ms) * 1_000_000n + BigInt((found[1] ?? "").padEnd(9, "0"));
}

export const second = 1_000_000_000n;
