// Reads a record against its form, and holds its members against each other.

import { type Bytes, Malformed, fromUtf8 } from "./bytes";
import { Newer, Reader } from "./json";
import { kinds, payloads, record } from "./shapes";

/** What the check of a bundle needs of a record. Members that are left out are undefined. */
export interface Scanned {
  time?: string;
  observer?: string;
  kind?: string;
  gap?: { stage: string; first?: bigint; last?: bigint; count: bigint; bytes?: bigint };
  copy?: Copy;
  lifecycle?: { phase: string; parent?: Parent };
}

/** The run whose state a run continues, as its start states it. */
export interface Parent {
  op: string;
  run: string;
  seq: bigint;
  root: string;
  manifest: string;
}

export interface Copy {
  direction: string;
  op: string;
  first?: bigint;
  salt?: string;
  files?: { path: string | Bytes; as?: string | Bytes; mode: string; size: bigint; sha256?: string; link?: string | Bytes }[] | null;
  count?: bigint;
  bytes?: bigint;
  root?: string;
}

export interface Scan {
  said: Scanned;
  /** The members that this version does not know; it was not read behind that. */
  stranger?: string;
  /** The kind is one that this version knows. */
  known: boolean;
}

export function scan(data: Bytes): Scan {
  const r = new Reader(fromUtf8(data, "the record"), true);
  try {
    record(r);
  } catch (error) {
    if (error instanceof Newer) return { said: (r.top ?? {}) as Scanned, stranger: error.message, known: false };
    throw error;
  }
  if (r.at !== r.text.length) r.fail("something follows");
  const said = r.top as Scanned;
  if (said.observer !== "host" && said.observer !== "guest") throw new Malformed("it has no such observer");
  const kind = said.kind!;
  if (!kinds.has(kind)) return { said, known: false };
  const due = kind === "run" || kind === "step" ? "lifecycle" : kind;
  const there = Object.keys(said).filter((name) => payloads.has(name));
  if (there.length !== 1 || there[0] !== due) throw new Malformed(`it is of kind ${kind} and does not have the payload of that`);
  return { said, known: true };
}
