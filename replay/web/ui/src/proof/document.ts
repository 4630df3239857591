// The document that proves one record (audit/proof.RecordProof), taken apart and held to its form: it has one text only.

import { type Bytes, Malformed, fromDigest, latin1, utf8 } from "./bytes";
import { Newer, parse } from "./json";
import { proof } from "./shapes";

export type DocumentState = "open" | "sealed" | "logged";

/** Where a leaf stands in a tree, and the hashes beside its way to the root, from the leaf up. */
export interface AuditPath {
  index: bigint;
  path: Bytes[];
}

/** A signed note, and where the host's log has its entry. */
export interface LoggedNote {
  note: Bytes;
  log?: AuditPath;
}

export interface Document {
  run: string;
  seq: bigint;
  state: DocumentState;
  record?: Bytes;
  salt?: Bytes;
  leaf: Bytes;
  erasure?: LoggedNote;
  segment?: AuditPath;
  manifest?: LoggedNote;
  checkpoint?: Bytes;
  stamp?: Bytes;
  rotations: LoggedNote[];
  hostKey?: string;
}

const leafRule = "SHA-256(0x00 || salt || record)";
const longestRecord = 4 << 20;
const longestDocument = 2 * longestRecord + (1 << 20);
const longestPath = 64;
const longestNote = 64 << 10;

interface RawPath {
  index: bigint;
  path: string[] | null;
}

interface RawNote {
  note: string;
  log?: RawPath;
}

interface Raw {
  type: string;
  v: bigint;
  run: string;
  seq: bigint;
  state: string;
  record?: Bytes;
  salt?: Bytes;
  leaf: string;
  leaf_rule: string;
  erasure?: RawNote;
  segment?: RawPath;
  manifest?: RawNote;
  checkpoint?: string;
  stamp?: Bytes;
  rotations?: RawNote[];
  host_key?: string;
}

/** Reads a document, byte for byte as the API gives it. Anything that is not of its form is Malformed. */
export function parseDocument(data: Bytes): Document {
  if (data.length > longestDocument || data.at(-1) !== 0x0a) throw new Malformed("it is no proof of a record: keep the answer as it came");
  let d: Raw;
  try {
    d = parse(data.subarray(0, -1), proof, "the proof");
  } catch (error) {
    throw error instanceof Newer ? new Malformed(`the proof has a member that is not known: ${error.message}`) : error;
  }
  if (d.type !== "custody record proof" || d.v !== 1n) throw new Malformed("it is not a proof of a record, version 1: a newer custody can read it");
  if (d.leaf_rule !== leafRule) throw new Malformed("it has another rule for leaves");
  const state = d.state;
  if (state !== "open" && state !== "sealed" && state !== "logged") throw new Malformed("its state is none that is known");
  const doc: Document = {
    run: d.run, seq: d.seq, state, record: d.record, salt: d.salt, leaf: fromDigest(d.leaf), erasure: d.erasure && loggedNote(d.erasure),
    segment: d.segment && auditPath(d.segment), manifest: d.manifest && loggedNote(d.manifest), checkpoint: d.checkpoint === undefined ? undefined : utf8(d.checkpoint),
    stamp: d.stamp, rotations: (d.rotations ?? []).map(loggedNote), hostKey: d.host_key,
  };
  shape(doc);
  return doc;
}

/** There is what the state says, and nothing else. */
function shape(d: Document): void {
  if (d.seq < 1n || d.seq >= 1n << 63n) throw new Malformed(`no record has seq ${d.seq}`);
  const sealed = d.state !== "open";
  const logged = d.state === "logged";
  const erased = d.erasure !== undefined;
  if (erased === (d.record !== undefined) || erased === (d.salt !== undefined) || (erased && !sealed)) {
    throw new Malformed("it must have a record with its salt, or a statement of its erasure");
  }
  if (d.salt && d.salt.length !== 16) throw new Malformed(`its salt has ${d.salt.length} bytes`);
  if (sealed !== (d.manifest !== undefined) || sealed !== (d.segment !== undefined)) {
    throw new Malformed("manifest and path in the segment belong to states sealed and logged");
  }
  if (logged !== (d.checkpoint !== undefined) || (sealed && logged !== (d.manifest!.log !== undefined))) {
    throw new Malformed("checkpoint and path in the log belong to state logged");
  }
  if (!logged && (d.rotations.length > 0 || d.stamp || d.erasure?.log)) {
    throw new Malformed("rotations, time stamp and paths in the log belong to state logged");
  }
  if (new Set(d.rotations.map((r) => latin1(r.note))).size < d.rotations.length) throw new Malformed("a rotation comes twice");
  const long = (d.record?.length ?? 0) > longestRecord || (d.checkpoint?.length ?? 0) > longestNote || (d.stamp?.length ?? 0) > longestNote;
  if (long) throw new Malformed("a part of it is longer than any can be");
}

function auditPath(p: RawPath): AuditPath {
  if (!p.path || p.path.length > longestPath) throw new Malformed("a path is missing, or longer than any can be");
  return { index: p.index, path: p.path.map(fromDigest) };
}

function loggedNote(n: RawNote): LoggedNote {
  const note = utf8(n.note);
  if (note.length > longestNote) throw new Malformed("a note is longer than any can be");
  return n.log ? { note, log: auditPath(n.log) } : { note };
}
