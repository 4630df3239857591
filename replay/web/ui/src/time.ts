// Instants come from the API as RFC 3339 with up to nine digits of a second, which is more
// than a Date holds: text is cut, not computed, wherever the full value is shown.

export type Zone = "utc" | "local";

const rfc = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/;

/** Milliseconds since 1970 with their fraction (microseconds survive); NaN for no instant. */
export function parse(text: string): number {
  const m = rfc.exec(text);
  if (!m) return NaN;
  const base = Date.parse(`${m[1]}T${m[2]}${m[4]}`);
  return base + Number((m[3] ?? "").padEnd(9, "0")) / 1e6;
}

/** Nanoseconds since 1970, exactly. */
export function nanos(text: string): bigint | undefined {
  const m = rfc.exec(text);
  if (!m) return undefined;
  return BigInt(Date.parse(`${m[1]}T${m[2]}${m[4]}`)) * 1_000_000n + BigInt((m[3] ?? "").padEnd(9, "0"));
}

/** The difference a - b in milliseconds, exact to the nanosecond before rounding. */
export function since(a: string, b: string): number {
  const x = nanos(a);
  const y = nanos(b);
  return x === undefined || y === undefined ? NaN : Number(x - y) / 1e6;
}

const pad = (n: number, width = 2) => String(n).padStart(width, "0");

/** Date and time of an instant in milliseconds, with so many digits of the second (0 to 3). */
export function stamp(ms: number, zone: Zone, digits = 3): string {
  return `${day(ms, zone)} ${clock(ms, zone, digits)}`;
}

export function day(ms: number, zone: Zone): string {
  const d = new Date(Math.floor(ms));
  return zone === "utc"
    ? `${d.getUTCFullYear()}-${pad(d.getUTCMonth() + 1)}-${pad(d.getUTCDate())}`
    : `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
}

export function clock(ms: number, zone: Zone, digits = 3): string {
  const d = new Date(Math.floor(ms));
  const text =
    zone === "utc"
      ? `${pad(d.getUTCHours())}:${pad(d.getUTCMinutes())}:${pad(d.getUTCSeconds())}`
      : `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return digits === 0 ? text : `${text}.${pad(d.getUTCMilliseconds(), 3).slice(0, digits)}`;
}

/** "+01:00" of the local zone at an instant, "Z" for UTC. */
export function offset(ms: number, zone: Zone): string {
  if (zone === "utc") return "Z";
  const minutes = -new Date(ms).getTimezoneOffset();
  const abs = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${pad(Math.floor(abs / 60))}:${pad(abs % 60)}`;
}

/** All nine digits of an instant that the API gave, in the zone. */
export function full(text: string, zone: Zone): string {
  const m = rfc.exec(text);
  if (!m) return text;
  const ms = Date.parse(`${m[1]}T${m[2]}${m[4]}`);
  return `${day(ms, zone)}T${clock(ms, zone, 0)}.${(m[3] ?? "").padEnd(9, "0")}${offset(ms, zone)}`;
}

/** A length of time in milliseconds for people: 340 µs, 12 ms, 1.23 s, 2 min 3 s. */
export function span(ms: number): string {
  const abs = Math.abs(ms);
  if (abs < 1) return `${Math.round(ms * 1000)} µs`;
  if (abs < 1000) return `${abs < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (abs < 60_000) return `${abs < 10_000 ? (ms / 1000).toFixed(2) : (ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (abs < 3_600_000) return `${Math.trunc(s / 60)} min ${Math.abs(s % 60)} s`;
  return `${Math.trunc(s / 3600)} h ${Math.abs(Math.trunc((s % 3600) / 60))} min`;
}

/** The same in whole seconds: 12 s, 2 min 3 s. */
export function whole(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  return s < 60 ? `${s} s` : span(s * 1000);
}

/** An offset from the run's start, as the API and custody timeline --at take it: +1.234567s. */
export function offsetText(ms: number): string {
  const micros = Math.max(0, Math.round(ms * 1000));
  return `+${Math.floor(micros / 1e6)}.${pad(micros % 1e6, 6)}s`;
}

/** Reads +1.234567s, +1m2s, or an RFC 3339 instant, as milliseconds since began; NaN for none. */
export function parseOffset(text: string, began: string): number {
  if (!text.startsWith("+")) return since(text, began);
  const units: Record<string, number> = { h: 3.6e6, m: 6e4, s: 1000, ms: 1, us: 1e-3, "µs": 1e-3, ns: 1e-6 };
  if (!/^\+(\d+(\.\d+)?(h|ms|m|s|us|µs|ns))+$/.test(text)) return NaN;
  let ms = 0;
  for (const m of text.matchAll(/(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)/g)) ms += Number(m[1]) * units[m[2]!]!;
  return ms;
}
