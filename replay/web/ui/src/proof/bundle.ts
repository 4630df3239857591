// The check of a whole bundle, in the order of docs/verify.md, except time stamps. It comes to the verdicts of custody
// verify; docs/redo_test.go holds them against each other. Nothing that comes with the bundle is believed.

import { type Archive, unpack } from "./archive";
import { type Bytes, Malformed, base64, equal, fromBase64, hex, latin1, utf8 } from "./bytes";
import { type SignedCheckpoint, cosignedBy, openCheckpoint } from "./checkpoint";
import { Finding, check } from "./finding";
import { instant, second } from "./instant";
import { type Generation, follow } from "./lineage";
import { continues, included, leafHash } from "./merkle";
import { type Key, asWitness, idOf, keysById, readHostKey } from "./note";
import { Forged, type Keys, type Opened, Ring, grace, openOf } from "./ring";
import { Segments } from "./segments";
import { digest, sha256 } from "./sha256";
import { kinds } from "./shapes";
import { type Erasure, type Selection, attachable, erasable, erasureEntry, manifestEntry, rotationEntry, uint64 } from "./statements";

/** Whom the verifier trusts, and what he asks for. */
export interface Demands {
  hosts: readonly Key[];
  /** Root keys of fleets, which state whose a host's key is. */
  fleets: readonly Key[];
  witnesses: readonly Key[];
  /** How many of the witnesses have to have cosigned. */
  quorum: number;
  /** A checkpoint that was kept from before. */
  since?: Bytes;
  /** How long after its seal a manifest may first be witnessed, in seconds. */
  within: bigint;
}

/** What was found. status is 0 if the bundle holds, 1 if it does not, 2 if it cannot be judged. */
export interface Verdict {
  status: 0 | 1 | 2;
  finding: string;
  run?: string;
  head?: string;
  records?: bigint;
  erased?: bigint;
  withheld?: bigint;
  size?: bigint;
  witnesses?: string[];
  /** The run's ancestors, from its parent on, one line for each. */
  lineage?: string[];
  /** The key in host.pub: a hint, not evidence. */
  offered?: string;
}

/** Checks a bundle. It throws only if the check itself cannot be made. told learns how far it is, from 0 to 1. */
export async function verifyBundle(data: Bytes, demands: Demands, told?: (part: number) => Promise<void>): Promise<Verdict> {
  const check = new BundleCheck(demands, told);
  const one = (ancestor: Bytes) => new BundleCheck(demands).all(ancestor);
  try {
    const { lines, doubt } = await follow(await check.all(data), one);
    check.verdict.lineage = lines;
    if (doubt) throw doubt;
    return check.verdict;
  } catch (error) {
    return { ...check.verdict, ...refusal(error) };
  }
}

/** The status and the words of a finding. Any other error is thrown again. */
export function refusal(error: unknown): { status: 1 | 2; finding: string } {
  if (error instanceof Finding) return { status: error.status, finding: error.message };
  if (error instanceof Malformed || error instanceof Forged) return { status: 1, finding: error.message };
  throw error;
}

interface Signed extends Opened<"manifest"> {
  name: string; // of its file, without the suffix
  entry: string;
  index: bigint; // in the host's log
  oldest?: bigint; // the stated time of its oldest record
}

const skew = 300n; // seconds that clocks may be apart
const hashes = "((?:[A-Za-z0-9+/]{43}=\\n){0,64})";
const decimal = "(0|[1-9][0-9]{0,19})";

class BundleCheck {
  readonly verdict: Verdict = { status: 0, finding: "" };
  readonly #ring: Ring;
  readonly #witnesses: Keys;
  #files!: Map<string, Bytes>; // those that are not spoken for yet
  #manifests: Signed[] = [];
  #host = "";
  #run = "";
  #head = "";
  #signed!: Bytes; // the checkpoint
  #checkpoint!: SignedCheckpoint;
  #entries: [name: string, entry: string][] = []; // of rotations and erasures
  #places = new Map<string, bigint>(); // in the log, of these
  #erasedAt: [name: string, time: string][] = []; // the stated times of erasures

  constructor(readonly demands: Demands, readonly told?: (part: number) => Promise<void>) {
    this.#ring = new Ring(demands.hosts);
    this.#witnesses = keysById(demands.witnesses.map(asWitness));
  }

  /** Checks the run without its ancestors. */
  async all(data: Bytes): Promise<Generation> {
    const archive = unpack(data);
    this.#files = new Map(archive.files);
    const publicKey = latin1(this.#take("host.pub")!);
    check(publicKey.endsWith("\n"), "host.pub is not one line");
    this.verdict.offered = publicKey.slice(0, -1);
    const stated = this.#numbered(".host");
    await this.#ring.attest(this.demands.fleets, stated.map((n) => this.#take(n)!));
    const rotated = this.#numbered(".rotation");
    await this.#rotations(rotated);
    await this.#chain();
    const own = readHostKey(publicKey.slice(0, -1));
    check(own.name === this.#host, "host.pub is the key of another host");
    check(this.#ring.knows(own), "host.pub is not a key that is trusted here, and no rotation leads there");
    check(idOf(own) === this.#manifests[0]!.by, "host.pub is not the key that signed the first manifest");
    const fromOne = (names: string[]) => names.every((n, i) => BigInt(n.slice(0, 20)) === BigInt(i + 1));
    check(fromOne(stated), "statements about hosts are not numbered from 1");
    check(fromOne(rotated), "rotations are not numbered from 1");
    check(new Set(this.#entries.map(([, entry]) => entry)).size === rotated.length, "a rotation comes twice");
    const selection = await this.#selection();
    const segments = await this.#segments(await this.#erasures());
    this.#end(segments, selection);
    await this.#attached();
    await this.#published();
    const ancestors = new Map(this.#numbered(".ancestor").map((n) => [n, this.#take(n)!]));
    this.#strays();
    return { run: this.#run, parent: segments.start?.parent, ancestors, doubt: await this.#trailed(data, archive, segments) };
  }

  /** Takes a file out of those that are not spoken for. */
  #take(name: string): Bytes | undefined {
    const data = this.#files.get(name);
    this.#files.delete(name);
    return data;
  }

  #numbered(suffix: string): string[] {
    return [...this.#files.keys()].filter((n) => n.length === 20 + suffix.length && n.endsWith(suffix) && /^[0-9]{20}/.test(n));
  }

  async #rotations(names: string[]): Promise<void> {
    const notes = names.map((n) => this.#take(n)!);
    await this.#ring.link(notes);
    names.forEach((name, i) => this.#entries.push([name, rotationEntry(sha256(notes[i]!))]));
  }

  /** Manifests are signed by trusted keys of one name, and each names the one before. */
  async #chain(): Promise<void> {
    const digests: string[] = [];
    for (const file of this.#numbered(".manifest")) {
      const data = this.#take(file)!;
      const opened = await this.#ring.open("manifest", data);
      const sum = sha256(data);
      digests.push(hex(sum));
      this.#manifests.push({ ...opened, name: file.slice(0, 20), entry: manifestEntry(opened.said.run, opened.said.segment, sum), index: 0n });
    }
    const all = this.#manifests;
    check(all.length > 0 || this.#numbered(".seg").length === 0, "the tail is cut: there is no manifest");
    check(all.length > 0, "there is no record here", 2);
    const signers = all.filter((m) => m.key);
    check(signers.every((m) => m.key!.name === signers[0]!.key!.name), "manifests of two hosts");
    check(signers.length > 0, `the manifests are signed by ${all[0]!.by}, which is not trusted here`, 2);
    check(signers.length === all.length, "a manifest is not signed by a key that is trusted here, others are");
    this.#host = signers[0]!.key!.name;
    this.#run = all[0]!.said.run;
    all.forEach(({ said: m, name }, i) => {
      const place = m.run === this.#run && m.segment === BigInt(i) && m.prev === (digests[i - 1] ?? "") && name === m.first.toString().padStart(20, "0");
      check(place, `${name}.manifest is of another run or out of chain, or one before it is missing`);
      check(m.closing === "" || i === all.length - 1, "there is a manifest behind the end");
    });
    this.#early();
    this.#head = digests.at(-1)!;
    Object.assign(this.verdict, { run: this.#run, head: this.#head });
  }

  async #selection(): Promise<Selection | undefined> {
    const data = this.#take("selection");
    if (!data) return undefined;
    const s = await openOf(this.#ring, "selection", data, this.#host);
    check(s.run === this.#run && s.head === this.#head, "the selection is of another run");
    return s;
  }

  async #erasures(): Promise<Map<bigint, Erasure>> {
    const all = new Map<bigint, Erasure>();
    for (const name of this.#numbered(".erasure")) {
      const seq = BigInt(name.slice(0, 20));
      const data = this.#take(name)!;
      const e = await openOf(this.#ring, "erasure", data, this.#host);
      check(e.run === this.#run && e.seq === seq, `${name} is about another record`);
      check(erasable(e.kind, kinds), "a record was erased that has to stay");
      all.set(seq, e);
      this.#entries.push([name, erasureEntry(this.#run, seq, sha256(data))]);
      this.#erasedAt.push([name, e.time]);
    }
    return all;
  }

  async #segments(erasures: Map<bigint, Erasure>): Promise<Segments> {
    const segments = new Segments(this.#run, erasures);
    const none = new Uint8Array(0);
    for (const [i, manifest] of this.#manifests.entries()) {
      const { said: m, name } = manifest;
      await this.told?.(i / this.#manifests.length);
      check(m.count === 0n || this.#files.has(name + ".seg"), `segment ${m.segment} is missing`);
      manifest.oldest = segments.take(m, this.#take(name + ".seg") ?? none, this.#take(name + ".leaves") ?? none);
      if (i === 0) this.#retired(segments.began);
    }
    return segments;
  }

  /** No key signs a manifest that says it was sealed before a rotation led to the key. */
  #early(): void {
    for (const { by, said, name } of this.#manifests) {
      check(!this.#ring.early(by, said.sealed_at), `${name}.manifest is signed by a key that the host did not have yet`);
    }
  }

  /** No key signs for a run that began after the key was retired. */
  #retired(began: bigint): void {
    for (const { by } of this.#manifests) {
      const r = this.#ring.next.get(by);
      check(!r || began <= instant(r.time) + grace * second, "the run is signed by a key that was retired before it began");
    }
  }

  #end(segments: Segments, selection: Selection | undefined): void {
    check(selection || segments.withheld === 0n, "records are withheld without a statement");
    check(this.#manifests.at(-1)!.said.closing !== "" && this.#numbered(".seg").length === 0, "the tail is cut, or there is a segment behind the end");
    if (selection) {
      const { records, withheld, digest } = selection;
      check(records === segments.records && withheld === segments.withheld && digest === segments.masked(), "other records are withheld than the selection says");
    }
    segments.end();
    Object.assign(this.verdict, { records: segments.records, erased: segments.erased, withheld: segments.withheld });
  }

  async #attached(): Promise<void> {
    const files = new Map([...this.#files].filter(([name]) => attachable(name)));
    const statement = this.#take("attachments");
    if (statement) {
      const a = await openOf(this.#ring, "attachments", statement, this.#host);
      check(a.about.some((s) => s.run === this.#run && s.head === this.#head), "the attachments are about another run");
      for (const f of a.files) {
        const data = files.get(f.name) ?? new Uint8Array(0);
        check(BigInt(data.length) === f.bytes && hex(await digest(data)) === (f.sha256 || "0".repeat(64)), `${f.name} is not what was attached`);
        files.delete(f.name);
        this.#take(f.name);
      }
    }
    check(files.size === 0, "a file is attached that no statement names");
  }

  /** All that is signed stands in the host's log, which goes on from earlier checkpoints. */
  async #published(): Promise<void> {
    const signed = this.#take("checkpoint");
    check(signed, "the checkpoint of the host's log is missing");
    this.#signed = signed;
    this.#checkpoint = await openCheckpoint(signed, this.#host, this.#ring.keys, this.#witnesses);
    const { size, cosigned } = this.#checkpoint;
    Object.assign(this.verdict, { size, witnesses: cosigned.map((w) => w.name) });
    check(cosigned.length >= this.demands.quorum, `too few witnesses that are trusted here have cosigned the checkpoint: ${cosigned.length}`);
    const kept = await this.#since();
    for (const [name, entry] of this.#entries) this.#places.set(name, this.#place(name, entry));
    for (const m of this.#manifests) m.index = this.#place(m.name, m.entry);
    await this.#timely();
    if (kept) this.#backdated(kept);
  }

  /** The log went on from the checkpoint in the bundle and from the verifier's own, which is returned. */
  async #since(): Promise<SignedCheckpoint | undefined> {
    const brought = this.#take("since");
    let from: bigint | undefined;
    let path: Bytes[] = [];
    if (brought) {
      [from, path] = this.#proof("consistency", `old ${decimal}\\n`);
      const old = await openCheckpoint(brought, this.#host, new Map([...this.#ring.keys, ...this.#ring.named]), this.#witnesses);
      check(old.size === from, "the proof of consistency is about another tree");
      this.#goesOn(old, from, path);
      check((old.size > 0n && old.size < this.#checkpoint.size) || path.length === 0, "the proof of consistency is longer than it has to be");
    }
    if (!this.demands.since) return undefined;
    const kept = await openCheckpoint(this.demands.since, this.#host, this.#ring.keys, this.#witnesses);
    this.#goesOn(kept, from, path);
    return kept;
  }

  #goesOn(old: SignedCheckpoint, from: bigint | undefined, path: Bytes[]): void {
    const { size, root } = this.#checkpoint;
    check(old.size <= size, `the log has ${size} entries, there were ${old.size}`);
    check(old.size !== size || equal(old.root, root), "the log is forked");
    if (old.size === 0n || old.size === size) return;
    check(old.size === from, "there is no proof that the log continues from the checkpoint that was kept");
    check(continues(old.size, size, path, old.root, root), "the log does not continue from the checkpoint that was kept");
  }

  /** The number and the path of a proof, which ends with the bundle's checkpoint. */
  #proof(name: string, start: string): [bigint, Bytes[]] {
    const data = this.#take(name);
    check(data, `${name} is missing`);
    const at = data.length - this.#signed.length;
    check(at >= 0 && equal(data.subarray(at), this.#signed), `${name} is under another checkpoint`);
    const found = new RegExp(`^${start}${hashes}\\n$`).exec(latin1(data.subarray(0, at)));
    check(found, `${name} has another form, or is about another entry`);
    return [uint64(found[1]!), path(found[2]!)];
  }

  /** Checks that an entry is in the log, and returns where. */
  #place(name: string, entry: string): bigint {
    const extra = base64(utf8(entry)).replace(/[+]/g, "\\+");
    const [index, path] = this.#proof(name + ".tlog-proof", `c2sp\\.org/tlog-proof@v1\\nextra ${extra}\\nindex ${decimal}\\n`);
    check(included(leafHash(utf8(entry)), index, this.#checkpoint.size, path, this.#checkpoint.root), `${name} is not in the host's log`);
    return index;
  }

  /** Witnesses saw each manifest soon after its stated time of sealing, and its records soon after their stated times. */
  async #timely(): Promise<void> {
    const shown = [this.#checkpoint];
    for (const m of this.#manifests) {
      const data = this.#take(m.name + ".witnessed");
      if (!data) continue;
      this.#take(m.name + ".witnessed.tsr");
      shown.push(await this.#witnessed(m, data));
    }
    const { quorum, within } = this.demands;
    const dated = shown.filter((c) => c.cosigned.length >= quorum).map((c) => ({ size: c.size, at: cosignedBy(c, quorum) }));
    dated.sort((a, b) => order(a.size, b.size)); // the largest is last
    let first: bigint | undefined; // time at which one covered this manifest and those behind it in the log
    for (const m of [...this.#manifests].sort((a, b) => order(b.index, a.index))) {
      for (; dated.length > 0 && dated.at(-1)!.size > m.index; dated.pop()) {
        const { at } = dated.at(-1)!;
        if (at !== undefined && (first === undefined || at < first)) first = at;
      }
      if (first === undefined) continue;
      const accepted = (first - within) * second;
      check(instant(m.said.sealed_at) >= accepted, `witnesses saw ${m.name}.manifest long after it says that it was sealed`);
      check(m.oldest === undefined || m.oldest >= accepted, `witnesses saw ${m.name}.manifest long after a record in it says that it was written`);
    }
  }

  async #witnessed(m: Signed, data: Bytes): Promise<SignedCheckpoint> {
    const name = m.name + ".witnessed";
    const found = new RegExp(`^custody witnessed v1\\n${hashes}\\n`).exec(latin1(data));
    check(found, `${name} has another form`);
    const old = await openCheckpoint(data.subarray(found[0].length), this.#host, this.#ring.keys, this.#witnesses);
    const { size, root } = this.#checkpoint;
    check(m.index < old.size && old.size <= size, `${name} does not cover the manifest`);
    check(continues(old.size, size, path(found[1]!), old.root, root), `${name}: the log does not go on from there`);
    return old;
  }

  /** No entry that was added to the log after the kept checkpoint claims to be much older. */
  #backdated(kept: SignedCheckpoint): void {
    const at = cosignedBy(kept, this.demands.quorum);
    for (const [name, time] of this.#erasedAt) {
      const young = at !== undefined && this.#places.get(name)! >= kept.size;
      check(!young || instant(time) >= (at - this.demands.within) * second, `${name} is younger in the log than it says`);
    }
    for (const { index, said, name, oldest } of this.#manifests) {
      const young = at !== undefined && index >= kept.size;
      check(!young || instant(said.sealed_at) >= (at - skew) * second, `${name}.manifest is younger in the log than it says`);
      check(!young || oldest === undefined || oldest >= (at - this.demands.within) * second, `${name}.manifest is younger in the log than a record in it says`);
    }
  }

  #strays(): void {
    for (const name of ["README.txt", "checkpoint.tsr", "trailer"]) this.#files.delete(name);
    check(this.#files.size === 0, `files belong to nothing: ${[...this.#files.keys()].slice(0, 10).join(", ")}`);
  }

  /** All bytes are what the signer of the trailer wrote. It returns what cannot be determined. */
  async #trailed(data: Bytes, archive: Archive, segments: Segments): Promise<Finding | undefined> {
    const { said: t, key } = await this.#ring.open("trailer", archive.files.get("trailer")!);
    const about = t.run === this.#run && t.head === this.#head && t.files === BigInt(archive.files.size - 1) && t.bytes === BigInt(archive.trailer);
    check(about && t.sha256 === hex(await digest(data.subarray(0, archive.trailer))), "the bundle is not what its trailer signs");
    if (segments.strange !== undefined) return new Finding(segments.strange, 2);
    return key ? undefined : new Finding("the trailer is not signed by a key that is trusted here", 2);
  }
}

const order = (a: bigint, b: bigint) => (a < b ? -1 : a > b ? 1 : 0);

function path(lines: string): Bytes[] {
  return lines.split("\n").slice(0, -1).map((line) => fromBase64(line, "a hash of a path"));
}
