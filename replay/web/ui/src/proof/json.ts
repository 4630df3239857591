// A reader of JSON that is written in the one form of docs/verify.md: no white space, members in their order, each
// string and number in one form. A shape describes what is expected. The reader goes from the front, and the first fault ends it.

import { type Bytes, Malformed, fromBase64, fromUtf8 } from "./bytes";
import { instant } from "./instant";

/**
 * "string", "text", "time", "bool", "hash", "bytes", "losses", or an integer such as "int64" or "uint32"; [T] is a list
 * or null, {...} an object with these members in this order. A member whose name ends in "?" is left out where it is
 * empty; "T?" is T or null.
 */
export type Shape = string | readonly Shape[] | { readonly [name: string]: Shape };

/** A member's name that is in no shape: a newer version wrote it. */
export class Newer extends Error {}

/** Reads one value. Integers are bigints, digests lower-case hex or empty, bytes and texts that are not UTF-8 Uint8Arrays. */
export type Read = (r: Reader) => unknown;

export class Reader {
  at = 0;
  /** The outermost object, as far as it was read. */
  top?: Record<string, unknown>;

  /** In records, <, >, & and U+FFFD stand as they are or escaped. */
  constructor(readonly text: string, readonly recorded = false) {}

  fail(what: string): never {
    throw new Malformed(`${what} at character ${this.at}`);
  }

  word(w: string): boolean {
    if (!this.text.startsWith(w, this.at)) return false;
    this.at += w.length;
    return true;
  }

  token(pattern: RegExp, what: string): string {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) this.fail(what);
    this.at = pattern.lastIndex;
    return found[0];
  }

  string(): string {
    const { text } = this;
    if (text.charCodeAt(this.at) !== 0x22) this.fail("no string");
    const from = this.at++;
    for (let escaped = false; ; this.at++) {
      const c = text.charCodeAt(this.at);
      if (c === 0x22) {
        this.at++;
        return escaped ? JSON.parse(text.slice(from, this.at)) as string : text.slice(from + 1, this.at - 1);
      }
      if (c === 0x5c) {
        this.token(this.recorded ? recordedEscape : escape, "no escape");
        this.at--;
        escaped = true;
      } else if (!(c >= 0x20) || (!this.recorded && (c === 0x3c || c === 0x3e || c === 0x26)) || c === 0x2028 || c === 0x2029) {
        this.fail("what has to be escaped, or the end, in a string");
      }
    }
  }
}

const escape = /\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]|3c|3e|26)|u202[89])/y;
const recordedEscape = /\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]|3c|3e|26)|u202[89]|ufffd)/y;
const number = /0|-?[1-9][0-9]*/y;
const name = /"([a-z0-9_]{1,64})":/y;
const base64 = /"[A-Za-z0-9+/=]*"/y;
const hash = /"(?:[0-9a-f]{64})?"/y;

/** The whole text as one value. */
export function parse<T>(text: string | Bytes, read: Read, what: string): T {
  const r = new Reader(typeof text === "string" ? text : fromUtf8(text, what));
  const value = read(r);
  if (r.at !== r.text.length) r.fail("something follows");
  return value as T;
}

/** The reader of a shape. */
export function reader(shape: Shape): Read {
  if (Array.isArray(shape)) return list(reader(shape[0] as Shape));
  if (typeof shape === "object") return object(shape as Record<string, Shape>);
  if (!shape.endsWith("?")) return scalar(shape);
  const read = scalar(shape.slice(0, -1));
  return (r) => (r.word("null") ? null : read(r));
}

function scalar(form: string): Read {
  const [, kind, bits] = /^([a-z]+?)(\d*)$/.exec(form) ?? [];
  switch (kind) {
    case "string": return (r) => r.string();
    case "int": return integer(-(1n << (BigInt(bits!) - 1n)), 1n << (BigInt(bits!) - 1n));
    case "uint": return integer(0n, 1n << BigInt(bits!));
    case "bool": return (r) => r.word("true") || (!r.word("false") && r.fail("neither true nor false"));
    case "time": return time;
    case "text": return textOrBytes;
    case "bytes": return bytes;
    case "hash": return digestText;
    case "losses": return losses;
  }
  throw new Error(`no shape: ${form}`);
}

function integer(least: bigint, bound: bigint): Read {
  return (r) => {
    const n = BigInt(r.token(number, "no number"));
    return n >= least && n < bound ? n : r.fail("a number that does not fit");
  };
}

function time(r: Reader): string {
  const text = r.string();
  instant(text);
  return text;
}

function textOrBytes(r: Reader): string | Bytes {
  if (!r.word('{"base64":')) return r.string();
  const raw = bytes(r);
  if (!r.word("}")) r.fail("no end of bytes");
  try {
    fromUtf8(raw, "it");
  } catch {
    return raw;
  }
  return r.fail("UTF-8 as bytes");
}

function bytes(r: Reader): Bytes {
  return fromBase64(r.token(base64, "no base64").slice(1, -1), "it");
}

function digestText(r: Reader): string {
  const text = r.token(hash, "no digest").slice(1, -1);
  return text === "0".repeat(64) ? r.fail("a digest in another form") : text;
}

/** What was lost by stage, the stages in byte order. */
export type Losses = Record<string, { gaps: bigint; events: bigint; bytes: bigint }>;

function losses(r: Reader): Losses {
  if (!r.word("{")) r.fail("no object");
  const all: Losses = Object.create(null) as Losses;
  for (let last: string | undefined; !r.word("}");) {
    if (last !== undefined && !r.word(",")) r.fail("no comma");
    const stage = r.string();
    if (last !== undefined && !before(last, stage)) r.fail("out of order");
    if (!r.word(":")) r.fail("no colon");
    all[stage] = loss(r) as Losses[string];
    last = stage;
  }
  return all;
}

const loss = object({ gaps: "uint64", events: "uint64", bytes: "int64" });

/** Byte order of UTF-8, which is that of code points and not that of JavaScript's units. */
function before(a: string, b: string): boolean {
  const x = Array.from(a, (c) => c.codePointAt(0)!);
  const y = Array.from(b, (c) => c.codePointAt(0)!);
  for (let i = 0; i < x.length && i < y.length; i++) if (x[i] !== y[i]) return x[i]! < y[i]!;
  return x.length < y.length;
}

function list(read: Read): Read {
  return (r) => {
    if (r.word("null")) return null;
    if (!r.word("[")) r.fail("no list");
    const all: unknown[] = [];
    while (!r.word("]")) {
      if (all.length > 0 && !r.word(",")) r.fail("no comma");
      all.push(read(r));
    }
    return all;
  };
}

interface Field {
  name: string;
  index: number;
  read: Read;
  /** Left out if it is one of these; undefined if it is always there. */
  nothing?: string[];
}

function object(shape: Record<string, Shape>): Read {
  const fields = Object.entries(shape).map(([key, sub], index): Field => ({
    name: key.replace("?", ""), index, read: reader(sub), nothing: key.endsWith("?") ? nothing(sub) : undefined,
  }));
  const byName = new Map(fields.map((f) => [f.name, f]));
  const required = fields.filter((f) => !f.nothing).map((f) => f.name);
  return (r) => {
    if (!r.word("{")) r.fail("no object");
    const all: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
    r.top ??= all;
    for (let due = 0; !r.word("}");) {
      if (due > 0 && !r.word(",")) r.fail("no comma");
      const f = byName.get(peek(r));
      if (!f) throw new Newer(peek(r));
      if (f.index < due) r.fail(`${f.name} comes twice, or out of order`);
      due = f.index + 1;
      r.at += f.name.length + 3;
      const from = r.at;
      all[f.name] = f.read(r);
      if (f.nothing?.some((n) => n.length === r.at - from && r.text.startsWith(n, from))) r.fail(`${f.name} says nothing`);
    }
    const missing = required.find((n) => !(n in all));
    return missing === undefined ? all : r.fail(`${missing} is missing`);
  };
}

/** The name of the member that is next. */
function peek(r: Reader): string {
  name.lastIndex = r.at;
  return name.exec(r.text)?.[1] ?? r.fail("no name");
}

/** How a member of this shape would be written that is left out. */
function nothing(shape: Shape): string[] {
  if (Array.isArray(shape)) return ["null", "[]"];
  if (typeof shape !== "string") return [];
  if (shape.endsWith("?")) return ["null"];
  if (shape === "time") return ['"0001-01-01T00:00:00Z"'];
  return ['""', "0", "false"];
}
