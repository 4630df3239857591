import { clock, day, parseOffset, parse, stamp, type Zone } from "./time";

/** The time that a run spans, in milliseconds since 1970, and the text of its beginning. */
export interface Span {
  began: string;
  end: number;
}

/** An instant of a run in milliseconds since it began, or why there is none. */
export type Moment = { ms: number; error?: undefined } | { ms?: undefined; error: string };

const shape = /^(?:(\d{4}-\d\d-\d\d)(?:[T ]+|$))?(?:(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d\d:?\d\d)?$/i;
const help = "Enter a time such as 14:32:07, a date and a time such as 2026-11-20 14:32:07 or 2026-11-20T14:32:07Z, or an offset from the run's start such as +7s.";
const dayLength = 864e5;

/**
 * Parses an instant that the user typed. A time of day without a date is the first such time in the run; a time
 * without a zone is in `zone`. What has less than a second's precision, and only partly lies in the run, is where
 * it first does: 14:31 is the start of a run that began at 14:31:20.
 */
export function readMoment(text: string, zone: Zone, run: Span): Moment {
  const typed = text.trim();
  if (typed === "") return { error: help };
  const began = parse(run.began);
  if (typed.startsWith("+")) return placed(began + parseOffset(typed, run.began), 1, zone, run);
  const m = shape.exec(typed);
  if (!m || (m[1] === undefined && m[2] === undefined)) return { error: `${JSON.stringify(typed.slice(0, 40))} is not a time. ${help}` };
  const [, date, hours, minutes, seconds, fraction, offset] = m;
  if (Number(hours ?? 0) > 23 || Number(minutes ?? 0) > 59 || Number(seconds ?? 0) > 59) return { error: `${typed.slice(0, 40)} is not a time of day: hours end at 23, minutes and seconds at 59.` };
  if (date !== undefined && !exists(date)) return { error: `${date} is not a date: the form is year-month-day.` };
  const time = `${(hours ?? "0").padStart(2, "0")}:${minutes ?? "00"}:${seconds ?? "00"}.${(fraction ?? "").padEnd(9, "0")}`;
  const wide = hours === undefined ? dayLength : seconds === undefined ? 6e4 : fraction === undefined ? 1000 : 1;
  if (date !== undefined) return placed(instant(date, time, zone, offset), wide, zone, run);
  // The day before the run's first in the zone of the page may be the first in the zone that was typed.
  const days = Math.min(Math.ceil((run.end - began) / dayLength), 400) + 1;
  let first: Moment | undefined;
  for (let i = -1; i <= days; i++) {
    const found = placed(instant(day(began + i * dayLength, zone), time, zone, offset), wide, zone, run);
    if (found.error === undefined) return found;
    if (i === 0) first = found;
  }
  return first!;
}

/** Milliseconds since 1970 of a date and a time with nine digits of the second. */
function instant(date: string, time: string, zone: Zone, offset: string | undefined): number {
  const [whole, fraction] = time.split(".") as [string, string];
  const where = offset === undefined ? (zone === "utc" ? "Z" : "") : /^(Z|UTC)$/i.test(offset) ? "Z" : offset.replace(/^(...):?/, "$1:");
  return Date.parse(`${date}T${whole}${where}`) + Number(fraction) / 1e6;
}

/** Where an instant of some width lies in the run. */
function placed(at: number, width: number, zone: Zone, run: Span): Moment {
  const began = parse(run.began);
  if (Number.isNaN(at)) return { error: help };
  if (at <= run.end && at + width > began) return { ms: Math.max(0, at - began) };
  const name = zone === "utc" ? "UTC" : "local time";
  const where = at > run.end ? "after" : "before";
  const until = day(began, zone) === day(run.end, zone) ? clock(run.end, zone) : stamp(run.end, zone);
  return { error: `${stamp(at, zone, width < 1000 ? 3 : 0)} is ${where} the run, which lasted from ${stamp(began, zone)} to ${until} ${name}.` };
}

function exists(date: string): boolean {
  const at = new Date(`${date}T00:00:00Z`);
  return !Number.isNaN(at.getTime()) && at.toISOString().startsWith(date);
}
