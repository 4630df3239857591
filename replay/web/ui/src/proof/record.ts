// The check of one record's proof, step by step, as docs/verify.md describes it:
//
//   record --leaf--> segment's tree --root--> manifest --entry--> host's log --root--> checkpoint (--> witnesses)
//
// Nothing that comes with the document is believed. The keys are the reader's own.

import { type Bytes, Malformed, concat, equal, fromDigest, fromUtf8, hex, utf8 } from "./bytes";
import { type SignedCheckpoint, openCheckpoint } from "./checkpoint";
import { type Document, type LoggedNote, parseDocument } from "./document";
import { Finding } from "./finding";
import { seqOf } from "./frames";
import { included, leafHash } from "./merkle";
import { type Key, type Note, asWitness, fingerprint, idOf, keysById, parseKey, parseNote, readHostKey } from "./note";
import { Forged, ForgedCosignature, type Keys, Ring, openOf } from "./ring";
import { scan } from "./scan";
import { sha256 } from "./sha256";
import { kinds } from "./shapes";
import { type Manifest, erasable, erasureEntry, manifestEntry, parseStatement, rotationEntry } from "./statements";
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

/** What is asked for beyond that. */
export interface Asked {
  /** How many of the witnesses have to have cosigned. */
  quorum?: number;
  /** A checkpoint that was kept from before. The document has no proof that the log went on from it. */
  since?: Bytes;
  /** Believe no key that came with the document. */
  strict?: boolean;
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

/** Checks a document as it came, byte for byte. It never throws: what goes wrong is in the report. */
export async function verifyRecord(data: Bytes, shown: Shown | undefined, trust: Trust, asked: Asked = {}): Promise<Report> {
  const check = new Check(shown, trust, asked);
  try {
    await check.all(data);
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
  #witnesses: Keys = new Map();
  #manifest?: Manifest;
  #signer?: Key;
  #doubt?: string; // what a newer version wrote

  constructor(readonly shown: Shown | undefined, readonly trust: Trust, readonly asked: Asked) {}

  async all(data: Bytes): Promise<void> {
    this.#doc = parseDocument(data);
    await this.#keys();
    await this.#record();
    if (this.#doc.state === "open") {
      this.#end("pending", "The record is written, but not yet signed. Its segment is sealed within about a second; then this can be checked.");
      return;
    }
    await this.#seal();
    if (this.#doc.erasure) await this.#erasure(this.#doc.erasure, this.#signer!.name);
    if (this.#doc.state === "sealed") {
      this.#end("pending", "The record is under a signed manifest, which is not under a checkpoint of the host's log yet.");
      return;
    }
    await this.#log();
    if (this.#doubt) {
      this.#end("cannot", this.#doubt);
    } else if (this.#pinned) {
      this.#end("holds", "The host signed exactly these bytes at this place of the run, and the record is in the host's log.");
    } else {
      this.#end("consistent", "All parts are consistent. The key came with the answer: an attacker who could forge the record could have sent that key, too. "
        + "Pin the host's key, obtained over a trusted channel, to prove that it is the host's record.");
    }
  }

  #end(overall: Overall, text: string): void {
    this.report.overall = overall;
    this.report.text = text;
  }

  stopped(error: unknown): void {
    const forged = error instanceof Malformed || error instanceof Forged || error instanceof Finding;
    const at = error instanceof ForgedCosignature ? "witnesses" : this.#at;
    const stop = error instanceof Stop ? error : new Stop(at, forged ? "fails" : "cannot", sentence(error));
    this.#add(stop.step, stop.outcome, sentence(stop));
    this.#end(stop.outcome, stop.outcome === "fails" ? "The proof does not hold: " + sentence(stop) : sentence(stop));
  }

  #add(name: Step["name"], outcome: Outcome, text: string, facts: Step["facts"] = []): void {
    this.report.steps.push({ name, outcome, text, facts });
  }

  /** Decides which keys to trust: the reader's, or without any those that came with the answer. */
  async #keys(): Promise<void> {
    this.#at = "manifest";
    const witnesses = await Promise.all(this.trust.witnesses.map(parseKey));
    this.#witnesses = keysById(witnesses.map(asWitness));
    const pinned = await Promise.all(this.trust.hosts.map(parseKey));
    const offered = this.#offered();
    if (offered) this.report.offered = { key: offered.text, fingerprint: await fingerprint(offered) };
    this.#pinned = pinned.length > 0 || this.asked.strict === true;
    const own = this.#pinned ? pinned : [...(offered ? [offered] : []), ...this.#retired()];
    this.#ring = new Ring(own);
    await this.#ring.link(this.#doc.rotations.map((r) => r.note));
    this.#at = "record";
  }

  /** The key that came with the document; undefined if there is none, or it is no key, which is reported when it matters. */
  #offered(): Key | undefined {
    try {
      return this.#doc.hostKey === undefined ? undefined : readHostKey(this.#doc.hostKey);
    } catch {
      return undefined;
    }
  }

  /** The keys that the document's rotations begin with. */
  #retired(): Key[] {
    return this.#doc.rotations.map((r) => readHostKey(parseStatement("rotation", parseNote(r.note, "a rotation").text).old));
  }

  /** The record gives the leaf, has its form, and is the one that the page shows. */
  async #record(): Promise<void> {
    const d = this.#doc;
    const { shown } = this;
    if (shown && (d.run !== shown.run || d.seq !== BigInt(shown.seq))) throw new Stop("record", "fails", "the proof is about another record than the one that is shown");
    if (!d.record) return;
    if (!equal(leafHash(concat(d.salt!, d.record)), d.leaf)) throw new Stop("record", "fails", "the record does not give the leaf: its bytes were changed");
    if (seqOf(d.record, utf8(`{"v":1,"run":"${d.run}","seq":`)) !== d.seq) throw new Stop("record", "fails", "the record says itself that it is another one");
    const { stranger, known } = scan(d.record);
    if (stranger !== undefined) this.#doubt = `The record has a field ${stranger}, which a newer version wrote: it cannot be judged here.`;
    else if (!known) this.#doubt = "The record is of a kind that a newer version wrote: it cannot be judged here.";
    const text = fromUtf8(d.record, "the record");
    if (shown?.record !== undefined && !same(JSON.parse(text), shown.record)) {
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
    const { said: m, key, note } = await this.#ring.open("manifest", d.manifest!.note);
    if (!key) throw new Stop("manifest", "cannot", this.#unknown(note));
    this.#manifest = m;
    this.#signer = key;
    if (m.run !== d.run) throw new Stop("manifest", "fails", "the manifest belongs to another run");
    if (m.count === 0n || d.seq < m.first || d.seq > m.last) throw new Stop("manifest", "fails", `the manifest signs for seqs ${m.first} to ${m.last}, not for this one`);
    if (this.#ring.early(idOf(key), m.sealed_at)) throw new Stop("manifest", "fails", "the manifest is signed by a key that the host did not have yet");
    const named = d.hostKey === undefined ? undefined : readHostKey(d.hostKey);
    if (named && (named.name !== key.name || !this.#ring.knows(named))) {
      throw new Stop("manifest", "fails", "the answer names a host key that is not the one that signed, and no rotation leads there");
    }
    this.#segment(m);
    this.report.signer = { key: this.#signer.text, fingerprint: await fingerprint(this.#signer), pinned: this.#pinned };
    const whose = this.#pinned ? "a key that you pinned" + (this.#ring.links.length ? ", or one that a pinned key named as its successor" : "") : "the key that came with the answer";
    this.#add("manifest", "holds", `The manifest of segment ${m.segment} is signed by ${this.#signer.name}: ${whose}.`, [
      ["Signs for", `seq ${m.first} to ${m.last}, ${m.count} records`], ["Sealed at, by the host's clock", m.sealed_at], ["Isolation tier", m.tier],
      ["Key's fingerprint", this.report.signer.fingerprint], ["SHA-256 of the manifest", hex(sha256(d.manifest!.note))],
    ]);
  }

  #segment(m: Manifest): void {
    const d = this.#doc;
    const { index, path } = d.segment!;
    if (!included(d.leaf, index, m.count, path, fromDigest(m.root))) {
      throw new Stop("segment", "fails", `leaf ${index} of ${m.count} does not lead to the root that the manifest signs`);
    }
    if (index > d.seq - m.first || m.count - index > m.last - d.seq + 1n) {
      throw new Stop("segment", "fails", `a record with this seq cannot be leaf ${index} of ${m.count}`);
    }
    this.#add("segment", "holds", `Leaf ${index + 1n} of ${m.count} leads to the segment's root over ${path.length} ${path.length === 1 ? "hash" : "hashes"}.`,
      [["Root", m.root], ...path.map((h, i): [string, string] => [`Hash ${i + 1}`, hex(h)])]);
  }

  #unknown(note: Note): string {
    const who = note.signatures[0]!;
    const offered = this.report.offered ? ` The answer offers a key with the fingerprint ${this.report.offered.fingerprint}.` : "";
    return `The manifest is signed by ${who.name}, key ${hex(who.id)}, which is not a key that you pinned.${offered}`;
  }

  /** The host's log has what was signed, under a checkpoint that the host signed. */
  async #log(): Promise<void> {
    const d = this.#doc;
    const m = this.#manifest!;
    const host = this.#signer!.name;
    this.#at = "checkpoint";
    const c = await openCheckpoint(d.checkpoint!, host, this.#ring.keys, this.#witnesses);
    const quorum = this.asked.quorum ?? 0;
    if (c.cosigned.length < quorum) throw new Stop("witnesses", "fails", `${c.cosigned.length} of the ${quorum} witnesses that are needed have cosigned the checkpoint`);
    if (this.asked.since) await this.#since(this.asked.since, host, c);
    this.#at = "log";
    for (const r of d.rotations) this.#entered(r, rotationEntry, c, "a key's rotation");
    this.#entered(d.manifest!, (digest) => manifestEntry(m.run, m.segment, digest), c, "the manifest");
    if (d.erasure) this.#entered(d.erasure, (digest) => erasureEntry(d.run, d.seq, digest), c, "the statement of the erasure");
    this.#add("log", "holds", `The manifest is entry ${d.manifest!.log!.index + 1n} of ${c.size} in the host's log.`,
      [["Root of the log", hex(c.root)], ...d.manifest!.log!.path.map((h, i): [string, string] => [`Hash ${i + 1}`, hex(h)])]);
    this.#add("checkpoint", "holds", `The head of the log, ${c.size} entries, is signed by ${c.origin}.`, []);
    this.#cosigned(c);
    if (d.stamp) {
      this.#add("stamp", "none", "There is a time stamp over the checkpoint. It is not checked here: download the proof and check it with openssl, as docs/verify.md describes.");
    }
  }

  async #since(kept: Bytes, host: string, c: SignedCheckpoint): Promise<void> {
    const old = await openCheckpoint(kept, host, this.#ring.keys, this.#witnesses);
    if (old.size !== 0n && (old.size !== c.size || !equal(old.root, c.root))) {
      throw new Stop("checkpoint", "fails", "there is no proof that the log went on from the checkpoint that was kept");
    }
  }

  /** A note is in the log where the document says; of the same note that comes twice, where it first does. */
  #entered(n: LoggedNote, entry: (digest: Bytes) => string, c: SignedCheckpoint, what: string): void {
    const d = this.#doc;
    const all = [...d.rotations, d.manifest, d.erasure].filter((x): x is LoggedNote => x?.log !== undefined && equal(x.note, n.note));
    const log = all[0]?.log;
    if (!log) throw new Stop("log", "fails", `there is no proof that ${what} is in the host's log`);
    const leaf = leafHash(utf8(entry(sha256(n.note))));
    if (!included(leaf, log.index, c.size, log.path, c.root)) throw new Stop("log", "fails", `${what} is not in the tree that the checkpoint signs`);
  }

  async #erasure(n: LoggedNote, host: string): Promise<void> {
    const d = this.#doc;
    this.#at = "record";
    const e = await openOf(this.#ring, "erasure", n.note, host);
    if (e.run !== d.run || e.seq !== d.seq || !equal(fromDigest(e.leaf), d.leaf)) throw new Stop("record", "fails", "the statement of the erasure is about another record");
    if (!erasable(e.kind, kinds)) throw new Stop("record", "fails", "a record of this kind may not be erased");
    this.#add("record", "holds", "The record was erased. Its leaf is still in its place, and the host has signed who erased it and why.",
      [["Kind, as the host says", e.kind], ["Reason", e.reason], ["By", e.by], ["At", e.time], ["Leaf", hex(d.leaf)]]);
  }

  /** Witnesses saw this checkpoint. Those that the reader did not pin count for nothing. */
  #cosigned(c: SignedCheckpoint): void {
    const good = c.cosigned.map((w) => `${w.name}, at ${moment(w.at)}`);
    const others = c.note.signatures.filter((s) => !this.#ring.keys.has(idOf(s)) && !this.#witnesses.has(idOf(s))).map((s) => s.name);
    const facts: Step["facts"] = [...good.map((g): [string, string] => ["Cosigned by", g]), ...others.map((o): [string, string] => ["Also signed, not checked", o])];
    if (good.length > 0) this.#add("witnesses", "holds", `${good.length} of ${this.#witnesses.size} witnesses that you pinned have cosigned this checkpoint.`, facts);
    else if (this.#witnesses.size > 0) this.#add("witnesses", "cannot", "No witness that you pinned has cosigned this checkpoint.", facts);
    else this.#add("witnesses", "none", "You have pinned no witness: that the host shows everybody the same log is not checked.", facts);
  }
}

/** A time in seconds since 1970, as a witness gives it: any number of 64 bits. */
function moment(seconds: bigint): string {
  return seconds < 253_402_300_800n ? new Date(Number(seconds) * 1000).toISOString() : `second ${seconds}`;
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
