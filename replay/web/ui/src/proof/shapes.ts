// The forms of what is signed. That of records is generated from Go's (docs/schema_test.go).

import { type Read, type Shape, reader } from "./json";
import schema from "./schema.json";

export const record = reader(schema as Shape);

/** The members of a record that are the payload of a kind. */
export const payloads = new Set(Object.entries(schema).filter(([name, s]) => name.endsWith("?") && typeof s === "object").map(([name]) => name.slice(0, -1)));
payloads.delete("guest_time");

/** Kinds of records that this version knows. */
export const kinds = new Set([...payloads, "run", "step"]);
kinds.delete("lifecycle");

export type Kind = "manifest" | "erasure" | "host" | "rotation" | "selection" | "attachments" | "trailer";



export const statements: Record<Kind, Read> = {
  manifest: reader({
    v: "int64", run: "string", segment: "uint64", first: "uint64", last: "uint64", count: "uint64", bytes: "int64", prev: "hash", root: "hash",
    losses: "losses", policy_digest: "string", ruleset_digest: "string", template_digest: "string", tier: "string", "tenant?": "string",
    sealed_at: "time", closing: "string",
  }),
  erasure: reader({ v: "int64", run: "string", seq: "uint64", leaf: "hash", kind: "string", reason: "string", by: "string", time: "time" }),
  host: reader({ v: "int64", host: "string", key: "string", time: "time" }),
  rotation: reader({ v: "int64", old: "string", new: "string", time: "time" }),
  selection: reader({
    v: "int64", run: "string", head: "hash", records: "uint64", withheld: "uint64", digest: "hash", what: "string", by: "string", time: "time",
  }),
  attachments: reader({
    v: "int64", about: [{ run: "string", head: "hash" }], files: [{ name: "string", bytes: "int64", sha256: "hash" }], by: "string", time: "time",
  }),
  trailer: reader({ v: "int64", run: "string", head: "hash", files: "uint64", bytes: "int64", sha256: "hash" }),
};

const path: Shape = { index: "uint64", path: ["hash"] };
const note: Shape = { note: "string", "log?": path };

/** The document that proves one record. */
export const proof = reader({
  type: "string", v: "int64", run: "string", seq: "uint64", state: "string", "record?": "bytes", "salt?": "bytes", leaf: "hash", leaf_rule: "string",
  "erasure?": note, "segment?": path, "manifest?": note, "checkpoint?": "string", "stamp?": "bytes", "rotations?": [note], "host_key?": "string",
});
