// What the segments of a run hold, one after the other.

import { type Bytes, equal, fromDigest, hex, join } from "./bytes";
import { Copies } from "./copies";
import { Finding, check } from "./finding";
import { type Frame, frames } from "./frames";
import { instant } from "./instant";
import type { Losses } from "./json";
import { rootOf } from "./merkle";
import { type Scan, type Scanned, scan } from "./scan";
import { sha256 } from "./sha256";
import type { Erasure, Manifest } from "./statements";

/** What the records of one segment declare. */
interface Part {
  losses: Losses;
  /** The stated time of the oldest record, in nanoseconds since 1970. */
  oldest?: bigint;
  /** What a newer version wrote. */
  strange?: string;
}

export class Segments {
  last = 0n;
  /** When the run began, in nanoseconds since 1970. */
  began!: bigint;
  records = 0n;
  erased = 0n;
  withheld = 0n;
  /** What leaves the question open, and undefined if nothing does. */
  strange?: string;
  /** The start of the run. */
  start?: Scanned["lifecycle"];
  readonly seen = new Set<bigint>(); // records that a statement says are erased, whether they are or not
  readonly #holes: [bigint, bigint][] = [];
  readonly #excuses: [bigint, bigint][] = [];
  readonly #copies = new Copies();
  readonly #masked: Bytes[] = [];
  #copyErased = false;

  constructor(readonly run: string, readonly erasures: ReadonlyMap<bigint, Erasure>) {}

  /** Checks a segment against its manifest, and returns the time of the oldest record that is shown. Its seqs have to come behind those before. */
  take(m: Manifest, data: Bytes, sums: Bytes): bigint | undefined {
    const leaves = Array.from({ length: Math.ceil(sums.length / 32) }, (_, i) => sums.subarray(32 * i, 32 * i + 32));
    const fits = sums.length % 32 === 0 && BigInt(leaves.length) === m.count && BigInt(data.length) === m.bytes && equal(rootOf(leaves), fromDigest(m.root));
    check(fits, `segment ${m.segment}: records or leaves are not what the manifest signs`);
    if (m.segment === 0n) this.began = instant(m.sealed_at);
    const part: Part = { losses: Object.create(null) as Losses };
    let first = this.last + 1n;
    let i = 0;
    for (const f of frames(data, leaves, this.run)) {
      check(f.seq > this.last, `seq ${f.seq} comes behind seq ${this.last}`);
      if (i === 0) first = f.seq;
      if (f.seq > this.last + 1n) this.#holes.push([this.last + 1n, f.seq - 1n]);
      this.last = f.seq;
      this.#frame(f, part, i++ === 0 && m.segment === 0n);
    }
    check(first === m.first && this.last === m.last, `segment ${m.segment}: it does not hold seqs ${m.first} to ${m.last}`);
    check(part.strange !== undefined || same(part.losses, m.losses), `segment ${m.segment}: gap records declare other losses than the manifest`);
    this.records += m.count;
    this.strange ??= part.strange;
    return part.oldest;
  }

  #frame(f: Frame, part: Part, opens: boolean): void {
    const e = this.erasures.get(f.seq);
    check(!e || equal(fromDigest(e.leaf), f.leaf), `the statement of an erasure is about another record than seq ${f.seq}`);
    if (e) this.seen.add(f.seq);
    if (f.record) {
      this.#record(f.seq, f.record, e, part, opens);
    } else if (f.withheld) {
      this.withheld++;
      const seq = new Uint8Array(8);
      new DataView(seq.buffer).setBigUint64(0, f.seq, true);
      this.#masked.push(seq, f.leaf);
    } else {
      check(e, `seq ${f.seq} is erased and no statement says so`);
      this.erased++;
      this.#copyErased ||= e.kind === "copy";
    }
  }

  #record(seq: bigint, record: Bytes, e: Erasure | undefined, part: Part, opens: boolean): void {
    let r: Scan;
    try {
      r = scan(record);
    } catch (error) {
      throw new Finding(`the record with seq ${seq} does not have its form: ${error instanceof Error ? error.message : String(error)}`);
    }
    if (r.said.time !== undefined) {
      const at = instant(r.said.time);
      if (opens) this.began = at;
      if (part.oldest === undefined || at < part.oldest) part.oldest = at;
    }
    if (r.stranger !== undefined) {
      part.strange ??= `seq ${seq} has a field ${r.stranger}: a newer custody can judge it`;
      return;
    }
    const { kind, gap, copy } = r.said;
    check(!e || e.kind === kind, `the statement of an erasure is about another record than seq ${seq}`);
    if (!r.known) {
      part.strange ??= `seq ${seq} is of a kind that is not known: a newer custody can judge it`;
      return;
    }
    if (gap) {
      const l = (part.losses[gap.stage] ??= { gaps: 0n, events: 0n, bytes: 0n });
      l.gaps = BigInt.asUintN(64, l.gaps + 1n);
      l.events = BigInt.asUintN(64, l.events + gap.count);
      l.bytes = BigInt.asIntN(64, l.bytes + (gap.bytes ?? 0n));
      if (r.said.observer === "host" && gap.stage === "wal") this.#excuses.push([gap.first ?? 0n, gap.last ?? 0n]);
    }
    if (copy) this.#copies.take(copy);
    if (kind === "run" && r.said.lifecycle?.phase === "start") this.start ??= r.said.lifecycle;
  }

  /** Checks what only all segments together show. */
  end(): void {
    check(this.strange !== undefined || this.#declared(), "seqs are missing that no gap declares");
    const blind = this.strange !== undefined || this.withheld > 0n || this.#holes.length > 0 || this.#copyErased;
    check(blind || !this.#copies.wrong, "the files of a copy do not give its root");
    for (const seq of this.erasures.keys()) check(this.seen.has(seq), `a statement says that seq ${seq} was erased, and the run has no such record`);
  }

  /** Each hole lies in a gap. The holes are in the order of their seqs. */
  #declared(): boolean {
    const gaps = this.#excuses.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    let next = 0;
    let last = 0n;
    return this.#holes.every(([from, to]) => {
      for (; next < gaps.length && gaps[next]![0] <= from; next++) if (gaps[next]![1] > last) last = gaps[next]![1];
      return to <= last;
    });
  }

  /** The digest over all that is withheld. */
  masked(): string {
    return hex(sha256(join(this.#masked)));
  }
}

function same(a: Losses, b: Losses): boolean {
  const stages = Object.keys(a);
  return stages.length === Object.keys(b).length
    && stages.every((s) => b[s] && a[s]!.gaps === b[s].gaps && a[s]!.events === b[s].events && a[s]!.bytes === b[s].bytes);
}
