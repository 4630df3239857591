// The document that proves one record (audit/proof.RecordProof), taken apart and held to its form.

import { type Bytes, Malformed, count, fromBase64, fromHex } from "./bytes";

export type DocumentState = "open" | "sealed" | "logged";

/** Where a leaf stands in a tree, and the hashes beside its way to the root, from the leaf up. */
export interface AuditPath {
  index: number;
  path: Bytes[];
}

/** A signed note, and where the host's log has its entry. */
export interface LoggedNote {
  note: string;
  log?: AuditPath;
}

export interface Document {
  run: string;
  seq: number;
  state: DocumentState;
  record?: Bytes;
  salt?: Bytes;
  leaf: Bytes;
  erasure?: LoggedNote;
  segment?: AuditPath;
  manifest?: LoggedNote;
  checkpoint: string;
  stamp?: Bytes;
  rotations: LoggedNote[];
  hostKey: string;
}

const leafRule = "SHA-256(0x00 || salt || record)";
const longestPath = 64;
const longestNote = 64 << 10;

const fields = new Set(["type", "v", "run", "seq", "state", "record", "salt", "leaf", "leaf_rule", "erasure", "segment", "manifest",
  "checkpoint", "stamp", "rotations", "host_key"]);

/** Reads a document as the API gives it. Anything that is not of its form is Malformed. */
export function parseDocument(value: unknown): Document {
  const d = object(value, "the proof", fields);
  if (d.type !== "custody record proof" || d.v !== 1) throw new Malformed("it is not a proof of a record, version 1: a newer custody can read it");
  if (d.leaf_rule !== leafRule) throw new Malformed("it has another rule for leaves");
  const state = d.state;
  if (state !== "open" && state !== "sealed" && state !== "logged") throw new Malformed("its state is none that is known");
  const doc: Document = {
    run: string(d.run, "run", 256), seq: count(d.seq, "seq"), state, leaf: fromHex(d.leaf, 32, "the leaf"),
    checkpoint: optional(d.checkpoint, (x) => string(x, "the checkpoint", longestNote)) ?? "",
    rotations: optional(d.rotations, (x) => list(x, "the rotations", 1000).map((r) => loggedNote(r, "a rotation"))) ?? [],
    hostKey: optional(d.host_key, (x) => string(x, "the host's key", 1000)) ?? "",
  };
  if (d.record !== undefined) doc.record = fromBase64(d.record, "the record");
  if (d.salt !== undefined) doc.salt = fromBase64(d.salt, "the salt");
  if (d.stamp !== undefined) doc.stamp = fromBase64(d.stamp, "the time stamp");
  if (d.segment !== undefined) doc.segment = auditPath(d.segment, "the path in the segment");
  if (d.manifest !== undefined) doc.manifest = loggedNote(d.manifest, "the manifest");
  if (d.erasure !== undefined) doc.erasure = loggedNote(d.erasure, "the erasure");
  shape(doc);
  return doc;
}

/** There is what the state says, and nothing else. */
function shape(d: Document): void {
  const sealed = d.state !== "open";
  const logged = d.state === "logged";
  const erased = d.erasure !== undefined;
  if (erased === (d.record !== undefined) || erased === (d.salt !== undefined) || (erased && !sealed)) {
    throw new Malformed("it has to hold a record with its salt, or a statement of its erasure");
  }
  if (d.salt && d.salt.length !== 16) throw new Malformed(`its salt has ${d.salt.length} bytes`);
  if (sealed !== (d.manifest !== undefined) || sealed !== (d.segment !== undefined)) {
    throw new Malformed("manifest and path in the segment belong to states sealed and logged");
  }
  if (logged !== (d.checkpoint !== "") || (sealed && logged !== (d.manifest!.log !== undefined))) {
    throw new Malformed("checkpoint and path in the log belong to state logged");
  }
  if (!logged && (d.rotations.length > 0 || d.stamp || d.erasure?.log)) {
    throw new Malformed("rotations, time stamp and paths in the log belong to state logged");
  }
}

function object(value: unknown, what: string, known: ReadonlySet<string>): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Malformed(`${what} is not a JSON object`);
  for (const name of Object.keys(value)) {
    if (!known.has(name)) throw new Malformed(`${what} has a field that is not known`);
  }
  return value as Record<string, unknown>;
}

function list(value: unknown, what: string, most: number): unknown[] {
  if (!Array.isArray(value) || value.length > most) throw new Malformed(`${what} are no list, or one that is too long`);
  return value;
}

function string(value: unknown, what: string, most: number): string {
  if (typeof value !== "string" || value === "" || value.length > most) throw new Malformed(`${what} is not text`);
  return value;
}

function optional<T>(value: unknown, read: (value: unknown) => T): T | undefined {
  return value === undefined ? undefined : read(value);
}

const pathFields = new Set(["index", "path"]);
const noteFields = new Set(["note", "log"]);

function auditPath(value: unknown, what: string): AuditPath {
  const p = object(value, what, pathFields);
  return { index: count(p.index, `the index of ${what}`), path: list(p.path, `the hashes of ${what}`, longestPath).map((h) => fromHex(h, 32, "a hash")) };
}

function loggedNote(value: unknown, what: string): LoggedNote {
  const n = object(value, what, noteFields);
  const note: LoggedNote = { note: string(n.note, what, longestNote) };
  if (n.log !== undefined) note.log = auditPath(n.log, `${what}'s path in the log`);
  return note;
}
