// What a host signs, as far as the proof of one record needs it: manifests, checkpoints and the entries of
// the host's log. docs/verify.md describes them.

import { type Bytes, Malformed, count, fromBase64, fromHex, fromUtf8, hex, parseCount } from "./bytes";

/** The signed summary of a segment. */
export interface Manifest {
  run: string;
  segment: number;
  first: number;
  last: number;
  count: number;
  root: Bytes;
  tier: string;
  sealedAt: string;
  closing: string;
}

const manifestHead = "custody manifest v1\n";
const manifestFields = ["v", "run", "segment", "first", "last", "count", "bytes", "prev", "root", "losses",
  "policy_digest", "ruleset_digest", "template_digest", "tier", "tenant", "sealed_at", "closing"];

/** Reads a manifest's text, which must be exactly what Custody's encoder makes of it. */
export function parseManifest(text: string): Manifest {
  if (!text.startsWith(manifestHead)) throw new Malformed("the manifest does not begin as one of version 1");
  const m = parseObject(text.slice(manifestHead.length), "the manifest");
  if (m.v !== 1) throw new Malformed("the manifest is of another version: a newer custody can read it");
  if (manifestHead + canonical(m) + "\n" !== text) throw new Malformed("the manifest is not in canonical form");
  for (const name of ["run", "tier", "sealed_at", "closing"]) {
    if (typeof m[name] !== "string") throw new Malformed(`the manifest's ${name} is not text`);
  }
  return {
    run: m.run as string, segment: count(m.segment, "the manifest's segment"),
    first: count(m.first, "the manifest's first seq"), last: count(m.last, "the manifest's last seq"),
    count: count(m.count, "the manifest's count"), root: fromHex(m.root, 32, "the manifest's root"),
    tier: m.tier as string, sealedAt: m.sealed_at as string, closing: m.closing as string,
  };
}

/** Writes the object as Go's encoding/json does, its fields in the manifest's order. Nothing else is in it. */
function canonical(m: Record<string, unknown>): string {
  const ordered: Record<string, unknown> = {};
  for (const name of manifestFields) if (name in m) ordered[name] = m[name];
  if (Object.keys(ordered).length !== Object.keys(m).length) throw new Malformed("the manifest has a field that is not known");
  return goJSON(ordered);
}

/** JSON as Go writes it: three characters of HTML and two line ends are escaped. */
export function goJSON(value: unknown): string {
  return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** One JSON object, and an error in words if the text is anything else. */
export function parseObject(text: string, what: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Malformed(`${what} is not JSON`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Malformed(`${what} is not a JSON object`);
  return value as Record<string, unknown>;
}

/** The head of the host's log: C2SP tlog-checkpoint. */
export interface Checkpoint {
  origin: string;
  size: number;
  root: Bytes;
}

/** Reads a checkpoint's text. Extension lines are allowed and mean nothing here. */
export function parseCheckpoint(text: string): Checkpoint {
  const [origin, size, root, ...rest] = text.split("\n");
  if (!origin || rest.length === 0 || rest.at(-1) !== "") throw new Malformed("the checkpoint has less than three lines");
  const hash = fromBase64(root, "the checkpoint's root");
  if (hash.length !== 32) throw new Malformed("the checkpoint's root is not a digest");
  return { origin, size: parseCount(size, "the checkpoint's size"), root: hash };
}

const leafHead = "custody leaf v1\n";

/** The entry of the host's log for a signed manifest. */
export function manifestEntry(run: string, segment: number, digest: Bytes): string {
  return `${leafHead}manifest ${run} ${segment} ${hex(digest)}\n`;
}

/** The entry of the host's log for a statement that a record was erased. */
export function erasureEntry(run: string, seq: number, digest: Bytes): string {
  return `${leafHead}erasure ${run} ${seq} ${hex(digest)}\n`;
}

/** The entry of the host's log for a statement that the host has a new key. */
export function rotationEntry(digest: Bytes): string {
  return `${leafHead}rotation ${hex(digest)}\n`;
}

/** A proof in the form of C2SP tlog-proof, with the entry itself as extra data. */
export interface Inclusion {
  entry: string;
  index: number;
  path: Bytes[];
  checkpoint: string;
}

/** Reads a tlog-proof, in the one form that Custody writes. */
export function parseInclusion(data: Bytes): Inclusion {
  const text = fromUtf8(data, "the proof of inclusion");
  const cut = text.indexOf("\n\n");
  const [head, extra, index, ...path] = text.slice(0, Math.max(cut, 0)).split("\n");
  if (head !== "c2sp.org/tlog-proof@v1" || !extra?.startsWith("extra ") || !index?.startsWith("index ")) {
    throw new Malformed("the proof of inclusion is no tlog-proof");
  }
  if (path.length > 64) throw new Malformed("the proof of inclusion has too many hashes");
  return {
    entry: fromUtf8(fromBase64(extra.slice(6), "the entry"), "the entry"), index: parseCount(index.slice(6), "the index"),
    path: path.map((line) => hash64(line)), checkpoint: text.slice(cut + 2),
  };
}

function hash64(line: string): Bytes {
  const hash = fromBase64(line, "a hash of the path");
  if (hash.length !== 32) throw new Malformed("a hash of the path is not a digest");
  return hash;
}

/** A rotation: the host's old key says which one comes after it. */
export interface Rotation {
  old: string;
  new: string;
  time: string;
}

const rotationHead = "custody rotation v1\n";

export function parseRotation(text: string): Rotation {
  if (!text.startsWith(rotationHead)) throw new Malformed("the statement is not one of a key's rotation");
  const r = parseObject(text.slice(rotationHead.length), "the rotation");
  const ordered = { v: 1, old: r.old, new: r.new, time: r.time };
  if (typeof r.old !== "string" || typeof r.new !== "string" || typeof r.time !== "string"
    || rotationHead + goJSON(ordered) + "\n" !== text) throw new Malformed("the rotation is not in canonical form");
  return { old: r.old, new: r.new, time: r.time };
}

/** An erasure: the host says that a record is gone, why, and what its leaf was. */
export interface Erasure {
  run: string;
  seq: number;
  leaf: Bytes;
  kind: string;
  reason: string;
  by: string;
  time: string;
}

const erasureHead = "custody erasure v1\n";

export function parseErasure(text: string): Erasure {
  if (!text.startsWith(erasureHead)) throw new Malformed("the statement is not one of an erasure");
  const e = parseObject(text.slice(erasureHead.length), "the erasure");
  const ordered = { v: 1, run: e.run, seq: e.seq, leaf: e.leaf, kind: e.kind, reason: e.reason, by: e.by, time: e.time };
  for (const name of ["run", "kind", "reason", "by", "time"]) {
    if (typeof e[name] !== "string") throw new Malformed(`the erasure's ${name} is not text`);
  }
  if (erasureHead + goJSON(ordered) + "\n" !== text) throw new Malformed("the erasure is not in canonical form");
  return {
    run: e.run as string, seq: count(e.seq, "the erasure's seq"), leaf: fromHex(e.leaf, 32, "the erasure's leaf"),
    kind: e.kind as string, reason: e.reason as string, by: e.by as string, time: e.time as string,
  };
}
