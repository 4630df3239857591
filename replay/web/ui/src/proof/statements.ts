// What a host signs: statements, each of two lines, and checkpoints, each of three. docs/verify.md describes them.

import { type Bytes, Malformed, fromBase64, hex } from "./bytes";
import { type Losses, Newer, parse } from "./json";
import { readHostKey } from "./note";
import { type Kind, statements } from "./shapes";

/** The signed summary of a segment. */
export interface Manifest {
  run: string;
  segment: bigint;
  first: bigint;
  last: bigint;
  count: bigint;
  bytes: bigint;
  prev: string;
  root: string;
  losses: Losses;
  tier: string;
  sealed_at: string;
  closing: string;
}

/** An erasure: the host's statement that a record was erased, with the reason and its leaf. */
export interface Erasure {
  run: string;
  seq: bigint;
  leaf: string;
  kind: string;
  reason: string;
  by: string;
  time: string;
}

/** The root key of a fleet says whose a key is. */
export interface Host {
  host: string;
  key: string;
}

/** A rotation: the host's old key names the next one. */
export interface Rotation {
  old: string;
  new: string;
  time: string;
}

/** That a bundle withholds records. */
export interface Selection {
  run: string;
  head: string;
  records: bigint;
  withheld: bigint;
  digest: string;
  what: string;
}

/** Which files go with a bundle. */
export interface Attachments {
  about: { run: string; head: string }[];
  files: { name: string; bytes: bigint; sha256: string }[];
}

/** The statement over all bytes of a bundle before it. */
export interface Trailer {
  run: string;
  head: string;
  files: bigint;
  bytes: bigint;
  sha256: string;
}

export interface Said {
  manifest: Manifest;
  erasure: Erasure;
  host: Host;
  rotation: Rotation;
  selection: Selection;
  attachments: Attachments;
  trailer: Trailer;
}

/** Reads a statement's text. */
export function parseStatement<K extends Kind>(kind: K, text: string): Said[K] {
  const head = `custody ${kind} v1\n`;
  if (!text.startsWith(head) || !text.endsWith("}\n")) throw new Malformed(`it is no statement of the kind ${kind}`);
  let said: Said[K] & { v: bigint };
  try {
    said = parse(text.slice(head.length, -1), statements[kind], `the ${kind}`);
  } catch (error) {
    throw error instanceof Newer ? new Malformed(`the ${kind} has a member that is not known: ${error.message}`) : error;
  }
  if (said.v !== 1n) throw new Malformed(`the ${kind} is of another version: a newer custody can read it`);
  forms[kind]?.(said as never);
  return said;
}

const forms: { [K in Kind]?: (said: Said[K]) => void } = {
  manifest: (m) => {
    if (!runName.test(m.run)) throw new Malformed("the manifest is of no run");
    if ([m.segment, m.first, m.last, m.count].some((n) => n >= 1n << 63n)) throw new Malformed("a number of the manifest does not fit");
    if (m.count === 0n && m.closing === "") throw new Malformed("a manifest of no records does not close the run");
    if (!["", "sealed", "interrupted"].includes(m.closing)) throw new Malformed("the manifest closes the run in a way that is not known");
  },
  host: (h) => {
    if (readHostKey(h.key).name !== h.host) throw new Malformed("a key is stated to be that of another host");
  },
  rotation: (r) => {
    if (readHostKey(r.old).name !== readHostKey(r.new).name) throw new Malformed("a rotation leads to a key of another name");
    if (r.old === r.new) throw new Malformed("a key follows itself");
  },
  attachments: (a) => {
    const names = a.files?.map((f) => f.name) ?? [];
    if (!a.about?.length || names.length < 1 || names.length > 64) throw new Malformed("the attachments are none, or about nothing");
    if (new Set(names.map((n) => n.toLowerCase())).size < names.length) throw new Malformed("two attached files have names that differ in case only");
    if (!a.files.every((f) => f.bytes >= 1n && f.bytes <= 64n << 20n)) throw new Malformed("an attached file is empty, or too long");
    if (!names.every((n, i) => attachable(n) && (i === 0 || names[i - 1]! < n))) throw new Malformed("the attachments are not named as they have to be");
  },
};

const runName = /^[0-9A-Za-z._-]{1,128}$/;

/** Reports whether a file of that name may be attached. */
export function attachable(name: string): boolean {
  return /^report\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(name);
}

/** Whether a record of that kind may be erased. */
export const erasable = (kind: string, kinds: ReadonlySet<string>) => kinds.has(kind) && !["run", "step", "policy", "gap", "vm"].includes(kind);

/** The head of the host's log: C2SP tlog-checkpoint. */
export interface Checkpoint {
  origin: string;
  size: bigint;
  root: Bytes;
}

/** Reads a checkpoint's text, of exactly three lines. */
export function parseCheckpoint(text: string): Checkpoint {
  const found = /^([!-*,-~]{1,100})\n(0|[1-9][0-9]{0,19})\n([A-Za-z0-9+/]{43}=)\n$/.exec(text);
  if (!found) throw new Malformed("the checkpoint is not a name, a size and a root on three lines");
  return { origin: found[1]!, size: uint64(found[2]!), root: fromBase64(found[3]!, "the checkpoint's root") };
}

/** A number of 64 bits, of decimal digits that the caller has checked. */
export function uint64(text: string): bigint {
  const n = BigInt(text);
  if (n >= 1n << 64n) throw new Malformed("a number does not fit");
  return n;
}

const leafHead = "custody leaf v1\n";

/** The entry of the host's log for a signed manifest. */
export function manifestEntry(run: string, segment: bigint, digest: Bytes): string {
  return `${leafHead}manifest ${run} ${segment} ${hex(digest)}\n`;
}

/** The entry of the host's log for a statement that a record was erased. */
export function erasureEntry(run: string, seq: bigint, digest: Bytes): string {
  return `${leafHead}erasure ${run} ${seq} ${hex(digest)}\n`;
}

/** The entry of the host's log for a statement that the host has a new key. */
export function rotationEntry(digest: Bytes): string {
  return `${leafHead}rotation ${hex(digest)}\n`;
}
