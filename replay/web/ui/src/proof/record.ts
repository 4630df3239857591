// The check of one record's proof, step by step, as docs/verify.md describes it:
//
//   record --leaf--> segment's tree --root--> manifest --entry--> host's log --root--> checkpoint (--> witnesses)
//
// Nothing that comes with the document is believed. The keys are the reader's own.

import { type Bytes, Malformed, equal, fromUtf8, hex, sha256, utf8 } from "./bytes";
import { type Document, type LoggedNote, parseDocument } from "./document";
import { included, leafHash } from "./merkle";
import { type Key, type Note, by, cosignedAt, fingerprint, isWitness, parseKey, parseNote, signed } from "./note";
import { Forged, Ring } from "./ring";
import {
  type Checkpoint, type Manifest, erasureEntry, manifestEntry, parseCheckpoint, parseErasure, parseManifest, parseObject, rotationEntry, parseRotation,
} from "./statements";
import type { Overall } from "./words";

/** What came of a step: it holds, it does not, it could not be judged, or there is nothing to check yet. */
export type Outcome = "holds" | "fails" | "cannot" | "none";

export interface Step {
  name: "record" | "segment" | "manifest" | "log" | "checkpoint" | "witnesses" | "stamp";
  outcome: Outcome;
  text: string;
  /** What was computed and compared, as label and value. */
  facts: [label: string, value: string][];
}

export interface Report {
  overall: Overall;
  text: string;
  steps: Step[];
  /** Exact text of the record; undefined if it was erased or is no text. */
  record?: string;
  /** The host's key that came with the answer, and its fingerprint: a hint. */
  offered?: { key: string; fingerprint: string };
  /** The key that signed the manifest, as far as it is known. */
  signer?: { key: string; fingerprint: string; pinned: boolean };
}

/** Whom the reader believes. Without keys of hosts the document's own are taken, and the best answer is "consistent". */
export interface Trust {
  hosts: readonly string[];
  witnesses: readonly string[];
}

/** The record that the proof has to be about, as the page shows it. */
export interface Shown {
  run: string;
  seq: number;
  record?: unknown;
}

/** A step that ends the check. */
class Stop extends Error {
  constructor(readonly step: Step["name"], readonly outcome: "fails" | "cannot", message: string) {
    super(message);
  }
}

/** Checks a document. It never throws: what goes wrong is in the report. */
export async function verifyRecord(value: unknown, shown: Shown, trust: Trust): Promise<Report> {
  const check = new Check(shown, trust);
  try {
    await check.all(value);
  } catch (error) {
    check.stopped(error);
  }
  return check.report;
}

class Check {
  readonly report: Report = { overall: "cannot", text: "", steps: [] };
  #at: Step["name"] = "record";
  #doc!: Document;
  #ring!: Ring;
  #pinned = false;
  #witnesses: Key[] = [];
  #manifest?: Manifest;
  #signer?: Key;

  constructor(readonly shown: Shown, readonly trust: Trust) {}

  async all(value: unknown): Promise<void> {
    this.#doc = parseDocument(value);
    await this.#keys();
    await this.#record();
    if (this.#doc.state === "open") {
      this.#end("pending", "The record is written, and nothing is signed yet. Its segment is sealed within a second or so; then this can be checked.");
      return;
    }
    await this.#seal();
    if (this.#doc.state === "sealed") {
      this.#end("pending", "The record is under a signed manifest, which is not under a checkpoint of the host's log yet.");
      return;
    }
    await this.#log();
    if (this.#pinned) {
      this.#end("holds", "This record is, byte for byte, what the host signed, at this place of its run, and it stands in the host's log.");
    } else {
      this.#end("consistent", "All parts fit together. The key came with the answer: whoever could forge the record could have sent that key too. "
        + "Pin the host's key, from somebody you trust, to know that it is the host's record.");
    }
  }

  #end(overall: Overall, text: string): void {
    this.report.overall = overall;
    this.report.text = text;
  }

  stopped(error: unknown): void {
    const forged = error instanceof Malformed || error instanceof Forged;
    const stop = error instanceof Stop ? error : new Stop(this.#at, forged ? "fails" : "cannot", sentence(error));
    this.#add(stop.step, stop.outcome, sentence(stop));
    this.#end(stop.outcome, stop.outcome === "fails" ? "The proof does not hold: " + sentence(stop) : sentence(stop));
  }

  #add(name: Step["name"], outcome: Outcome, text: string, facts: Step["facts"] = []): void {
    this.report.steps.push({ name, outcome, text, facts });
  }

  /** Whom to believe: the reader's keys, or for want of them what came with the answer. */
  async #keys(): Promise<void> {
    this.#at = "manifest";
    this.#witnesses = await Promise.all(this.trust.witnesses.map(parseKey));
    const pinned = await Promise.all(this.trust.hosts.map(parseKey));
    const offered = this.#doc.hostKey === "" ? undefined : await parseKey(this.#doc.hostKey);
    if (offered) this.report.offered = { key: offered.text, fingerprint: await fingerprint(offered) };
    this.#pinned = pinned.length > 0;
    const own = this.#pinned ? pinned : [...(offered ? [offered] : []), ...(await this.#retired())];
    this.#ring = new Ring(own);
    await this.#ring.link(this.#doc.rotations.map((r) => r.note));
    this.#at = "record";
  }

  /** The keys that the document's rotations begin with. */
  async #retired(): Promise<Key[]> {
    const texts = this.#doc.rotations.map((r) => parseRotation(parseNote(utf8(r.note), "a rotation").text).old);
    return Promise.all(texts.map(parseKey));
  }

  /** The record gives the leaf, and is the one that the page shows. */
  async #record(): Promise<void> {
    const d = this.#doc;
    if (d.run !== this.shown.run || d.seq !== this.shown.seq) throw new Stop("record", "fails", "the proof is about another record than the one that is shown");
    if (!d.record) return;
    const leaf = await leafHash(d.salt!, d.record);
    if (!equal(leaf, d.leaf)) throw new Stop("record", "fails", "the record does not give the leaf: its bytes were changed");
    const text = fromUtf8(d.record, "the record");
    const record = parseObject(text, "the record");
    if (record.v !== 1 || record.run !== d.run || record.seq !== d.seq) throw new Stop("record", "fails", "the record says itself that it is another one");
    if (this.shown.record !== undefined && !same(record, this.shown.record)) {
      throw new Stop("record", "fails", "the record that this page shows is not the one that was signed");
    }
    this.report.record = text;
    this.#add("record", "holds", "The hash of the salt and the record's exact bytes is the leaf.",
      [["Bytes", String(d.record.length)], ["Salt", hex(d.salt!)], ["Leaf", hex(d.leaf)]]);
  }

  /** The leaf leads to the root that the manifest signs, and the manifest is signed by a key that is believed. */
  async #seal(): Promise<void> {
    const d = this.#doc;
    this.#at = "manifest";
    const note = parseNote(utf8(d.manifest!.note), "the manifest");
    const m = parseManifest(note.text);
    this.#manifest = m;
    this.#signer = await this.#ring.signer(note, "the manifest");
    if (m.run !== d.run) throw new Stop("manifest", "fails", "the manifest belongs to another run");
    if (m.count === 0 || d.seq < m.first || d.seq > m.last) throw new Stop("manifest", "fails", `the manifest signs for seqs ${m.first} to ${m.last}, not for this one`);
    await this.#segment(m);
    if (!this.#signer) throw new Stop("manifest", "cannot", await this.#unknown(note));
    this.report.signer = { key: this.#signer.text, fingerprint: await fingerprint(this.#signer), pinned: this.#pinned };
    const whose = this.#pinned ? "a key that you pinned" + (this.#ring.links.length ? ", or one that a pinned key named as its successor" : "") : "the key that came with the answer";
    this.#add("manifest", "holds", `The manifest of segment ${m.segment} is signed by ${this.#signer.name}: ${whose}.`, [
      ["Signs for", `seq ${m.first} to ${m.last}, ${m.count} records`], ["Sealed at, by the host's clock", m.sealedAt], ["Isolation tier", m.tier],
      ["Key's fingerprint", this.report.signer.fingerprint], ["SHA-256 of the manifest", hex(await sha256(utf8(d.manifest!.note)))],
    ]);
    if (d.hostKey !== "" && !this.#ring.knows(await parseKey(d.hostKey))) {
      throw new Stop("manifest", "fails", "the answer names a host key that is not the one that signed, and no rotation leads there");
    }
  }

  async #segment(m: Manifest): Promise<void> {
    const d = this.#doc;
    const { index, path } = d.segment!;
    if (!(await included(d.leaf, index, m.count, path, m.root))) {
      throw new Stop("segment", "fails", `leaf ${index} of ${m.count} does not lead to the root that the manifest signs`);
    }
    if (index > d.seq - m.first || m.count - index > m.last - d.seq + 1) {
      throw new Stop("segment", "fails", `a record with this seq cannot be leaf ${index} of ${m.count}`);
    }
    this.#add("segment", "holds", `Leaf ${index + 1} of ${m.count} leads to the segment's root over ${path.length} ${path.length === 1 ? "hash" : "hashes"}.`,
      [["Root", hex(m.root)], ...path.map((h, i): [string, string] => [`Hash ${i + 1}`, hex(h)])]);
  }

  async #unknown(note: Note): Promise<string> {
    const who = note.signatures[0]!;
    const offered = this.report.offered ? ` The answer offers a key with the fingerprint ${this.report.offered.fingerprint}.` : "";
    return `The manifest is signed by ${who.name}, key ${hex(who.id)}, which is not a key that you pinned.${offered}`;
  }

  /** The host's log has what was signed, under a checkpoint that the host signed. */
  async #log(): Promise<void> {
    const d = this.#doc;
    this.#at = "checkpoint";
    const note = parseNote(utf8(d.checkpoint), "the checkpoint");
    const c = parseCheckpoint(note.text);
    await this.#checkpointSigned(note, c);
    this.#at = "log";
    const m = this.#manifest!;
    await this.#entered(d.manifest!, (digest) => manifestEntry(m.run, m.segment, digest), c, "the manifest");
    for (const r of d.rotations) await this.#entered(r, rotationEntry, c, "a key's rotation");
    if (d.erasure) await this.#erasure(d.erasure, c);
    this.#add("log", "holds", `The manifest is entry ${d.manifest!.log!.index + 1} of ${c.size} in the host's log.`,
      [["Root of the log", hex(c.root)], ...d.manifest!.log!.path.map((h, i): [string, string] => [`Hash ${i + 1}`, hex(h)])]);
    this.#add("checkpoint", "holds", `The head of the log, ${c.size} entries, is signed by ${c.origin}.`, []);
    await this.#cosigned(note);
    if (d.stamp) {
      this.#add("stamp", "none", "There is a time stamp over the checkpoint. It is not checked here: download the proof, docs/verify.md says how openssl checks it.");
    }
  }

  async #checkpointSigned(note: Note, c: Checkpoint): Promise<void> {
    if (c.origin !== this.#signer!.name) throw new Stop("checkpoint", "fails", "the checkpoint is another log's");
    let good = 0;
    for (const s of note.signatures) {
      const key = this.#ring.find(s.name, s.id);
      if (!key) continue;
      if (!(await signed(note, s, key))) throw new Stop("checkpoint", "fails", `the checkpoint is not what ${s.name} signed`);
      if (key.name === c.origin) good++;
    }
    if (good === 0) throw new Stop("checkpoint", this.#named(note, c.origin) ? "cannot" : "fails", "the checkpoint is not signed by a key of the host that is believed here");
  }

  #named(note: Note, who: string): boolean {
    return note.signatures.some((s) => s.name === who);
  }

  async #entered(n: LoggedNote, entry: (digest: Bytes) => string, c: Checkpoint, what: string): Promise<void> {
    if (!n.log) throw new Stop("log", "fails", `there is no proof that ${what} is in the host's log`);
    const leaf = await leafHash(utf8(entry(await sha256(utf8(n.note)))));
    if (!(await included(leaf, n.log.index, c.size, n.log.path, c.root))) throw new Stop("log", "fails", `${what} is not in the tree that the checkpoint signs`);
  }

  async #erasure(n: LoggedNote, c: Checkpoint): Promise<void> {
    const d = this.#doc;
    const note = parseNote(utf8(n.note), "the erasure");
    const e = parseErasure(note.text);
    const key = await this.#ring.signer(note, "the erasure");
    if (!key) throw new Stop("record", "cannot", "the statement of the erasure is signed by a key that is not known here");
    if (key.name !== this.#signer!.name) throw new Stop("record", "fails", "the statement of the erasure is another host's");
    if (e.run !== d.run || e.seq !== d.seq || !equal(e.leaf, d.leaf)) throw new Stop("record", "fails", "the statement of the erasure is about another record");
    if (["run", "step", "policy", "gap", "vm"].includes(e.kind)) throw new Stop("record", "fails", "a record of this kind may not be erased");
    await this.#entered(n, (digest) => erasureEntry(e.run, e.seq, digest), c, "the statement of the erasure");
    this.#add("record", "holds", "The record was erased. Its leaf is still in its place, and the host has signed who erased it and why.",
      [["Kind, as the host says", e.kind], ["Reason", e.reason], ["By", e.by], ["At", e.time], ["Leaf", hex(e.leaf)]]);
  }

  /** Witnesses saw this checkpoint. Those that the reader did not pin count for nothing. */
  async #cosigned(note: Note): Promise<void> {
    const good: string[] = [];
    for (const key of this.#witnesses) {
      for (const s of by(note, key)) {
        if (!(await signed(note, s, key))) throw new Stop("witnesses", "fails", `the cosignature of ${key.name} is not over this checkpoint`);
        good.push(isWitness(key) ? `${key.name}, at ${new Date(Number(cosignedAt(s)) * 1000).toISOString()}` : key.name);
      }
    }
    const others = note.signatures.filter((s) => !this.#ring.find(s.name, s.id) && !this.#witnesses.some((w) => w.name === s.name)).map((s) => s.name);
    const facts: Step["facts"] = [...good.map((g): [string, string] => ["Cosigned by", g]), ...others.map((o): [string, string] => ["Also signed, not checked", o])];
    if (good.length > 0) this.#add("witnesses", "holds", `${good.length} of ${this.#witnesses.length} witnesses that you pinned have cosigned this checkpoint.`, facts);
    else if (this.#witnesses.length > 0) this.#add("witnesses", "cannot", "No witness that you pinned has cosigned this checkpoint.", facts);
    else this.#add("witnesses", "none", "You have pinned no witness: that the host shows everybody the same log is not checked.", facts);
  }
}

function sentence(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Deep equality of JSON values. */
export function same(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const x = Object.entries(a);
  return x.length === Object.keys(b).length && x.every(([k, v]) => Object.hasOwn(b, k) && same(v, (b as Record<string, unknown>)[k]));
}
