import { get, Problem } from "../api";
import { Cell } from "../cell";
import type { RunStore } from "../runstore";
import type { RecordPage, RecordRow } from "../types";

/** What the list of records is narrowed to; empty fields narrow nothing. */
export interface Filter {
  kind: string;
  observer: string;
  verdict: string;
  step: string;
  q: string;
  tag: string; // of a note on the record; * for any note
}

export const none: Filter = { kind: "", observer: "", verdict: "", step: "", q: "", tag: "" };
export const narrows = (f: Filter) => Boolean(f.kind || f.observer || f.verdict || f.step || f.q || f.tag);

/** Records by their place in a list, as far as they are here. */
export interface Source {
  /** Grows with every change. */
  readonly changed: Cell<number>;
  readonly error: Cell<Problem | null>;
  size(): number;
  /** undefined: not here yet; null: there is no record of that seq. */
  row(index: number): RecordRow | null | undefined;
  /** Sets which rows are in sight. The answer is how many rows came in above them, at a later change. */
  want(first: number, last: number): void;
  /** The place of the last record up to a seq; undefined when that is not here. */
  find(seq: number): number | undefined;
  /** Starts again around a seq, where the source has no fixed places. */
  around(seq: number): void;
  /** How many rows were put before the first since the last question. */
  shifted(): number;
  /** New records of a live run. */
  push(rows: RecordRow[]): void;
  /** Whether all has been read, in both directions. */
  complete(): boolean;
  close(): void;
}

const chunk = 200;
const keep = 60; // chunks: 12,000 records

/**
 * All records of a run: the place of a record is its seq less one. Chunks are read as they come into
 * sight and the ones longest out of sight are dropped.
 */
export class BySeq implements Source {
  readonly changed = new Cell(0);
  readonly error = new Cell<Problem | null>(null);
  private chunks = new Map<number, (RecordRow | null)[]>();
  private asked = new Map<number, AbortController>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private last: number;

  constructor(private run: RunStore) {
    this.last = run.detail.get().last_seq;
  }

  size(): number {
    return this.last;
  }

  row(index: number): RecordRow | null | undefined {
    return this.chunks.get(Math.floor(index / chunk))?.[index % chunk];
  }

  want(first: number, last: number): void {
    const from = Math.floor(Math.max(0, first) / chunk);
    const to = Math.floor(Math.max(0, Math.min(last, this.last - 1)) / chunk);
    for (const [n, stop] of this.asked) if (n < from - 1 || n > to + 1) this.forget(n, stop);
    clearTimeout(this.timer);
    // While the list flies by nothing is asked for.
    this.timer = setTimeout(() => {
      for (let n = from; n <= to; n++) if (!this.chunks.has(n) && !this.asked.has(n)) void this.read(n);
    }, this.chunks.size ? 40 : 0);
  }

  private forget(n: number, stop: AbortController): void {
    stop.abort();
    this.asked.delete(n);
  }

  private async read(n: number): Promise<void> {
    const stop = new AbortController();
    this.asked.set(n, stop);
    try {
      const page = await get<RecordPage>(this.run.path("records"), { after: n * chunk, limit: chunk }, stop.signal);
      const rows = new Array<RecordRow | null>(Math.min(chunk, this.last - n * chunk)).fill(null);
      for (const row of page.records) {
        const at = row.seq - 1 - n * chunk;
        if (at >= 0 && at < chunk) rows[at] = row;
      }
      // A page is cut at so many bytes: what it does not reach is not missing.
      const reached = page.records.at(-1)?.seq ?? this.last;
      const short = page.next !== undefined && page.records.length < chunk && reached < Math.min((n + 1) * chunk, this.last);
      if (short) await this.rest(n, rows, page.next!, stop.signal);
      this.chunks.set(n, rows);
      this.error.set(null);
    } catch (e) {
      if (stop.signal.aborted) return;
      this.error.set(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    } finally {
      if (this.asked.get(n) === stop) this.asked.delete(n);
    }
    for (const old of this.chunks.keys()) {
      if (this.chunks.size <= keep) break;
      if (old !== n) this.chunks.delete(old);
    }
    this.changed.set(this.changed.get() + 1);
  }

  /** Reads on where a page ended early because its records are big. */
  private async rest(n: number, rows: (RecordRow | null)[], next: string, signal: AbortSignal): Promise<void> {
    for (let cursor: string | undefined = next; cursor; ) {
      const page: RecordPage = await get(this.run.path("records"), { after: n * chunk, limit: chunk, cursor }, signal);
      for (const row of page.records) {
        const at = row.seq - 1 - n * chunk;
        if (at >= 0 && at < rows.length) rows[at] = row;
        if (at >= rows.length - 1) return;
      }
      cursor = page.next;
    }
  }

  find(seq: number): number | undefined {
    return Math.min(Math.max(seq, 1), this.last) - 1;
  }

  around(): void {}

  shifted(): number {
    return 0;
  }

  push(rows: RecordRow[]): void {
    for (const row of rows) {
      this.last = Math.max(this.last, row.seq);
      const n = Math.floor((row.seq - 1) / chunk);
      const at = (row.seq - 1) % chunk;
      const have = this.chunks.get(n);
      if (have) {
        while (have.length < at) have.push(null);
        have[at] = row;
      } else if (at === 0) this.chunks.set(n, [row]);
    }
    this.changed.set(this.changed.get() + 1);
  }

  complete(): boolean {
    return true;
  }

  close(): void {
    clearTimeout(this.timer);
    for (const [n, stop] of this.asked) this.forget(n, stop);
  }
}

/** Records that a filter lets through: read from an anchor in both directions, page by page. */
export class Filtered implements Source {
  readonly changed = new Cell(0);
  readonly error = new Cell<Problem | null>(null);
  private rows: RecordRow[] = [];
  private ahead: string | undefined | null = null; // null: not asked yet, undefined: the end
  private back: string | undefined | null = null;
  private moved = 0;
  private anchor = 0; // what is ahead begins behind this seq,
  private start = 0; // and what is back before this one
  private busy = { ahead: false, back: false };
  private stop = new AbortController();

  constructor(private run: RunStore, private filter: Filter, seq: number) {
    this.around(seq);
  }

  size(): number {
    return this.rows.length;
  }

  row(index: number): RecordRow | undefined {
    return this.rows[index];
  }

  around(seq: number): void {
    this.stop.abort();
    this.stop = new AbortController();
    this.rows = [];
    this.ahead = this.back = null;
    this.busy = { ahead: false, back: false };
    this.anchor = Math.max(0, seq - 1);
    this.start = this.anchor + 1;
    if (this.anchor === 0) this.back = undefined;
    void this.read("ahead");
  }

  want(first: number, last: number): void {
    if (last >= this.rows.length - 60) void this.read("ahead");
    if (first < 60 && this.ahead !== null) void this.read("back");
  }

  private async read(way: "ahead" | "back"): Promise<void> {
    const cursor = this[way];
    if (cursor === undefined || this.busy[way]) return;
    this.busy[way] = true;
    const { signal } = this.stop;
    const order = way === "ahead" ? "asc" : "desc";
    const after = way === "ahead" ? this.anchor : this.start;
    try {
      const page = await get<RecordPage>(this.run.path("records"), { ...this.filter, order, after, limit: chunk, cursor }, signal);
      if (way === "ahead") this.rows = this.rows.concat(page.records);
      else {
        this.rows = page.records.reverse().concat(this.rows);
        this.moved += page.records.length;
      }
      this[way] = page.next;
      this.error.set(null);
    } catch (e) {
      if (signal.aborted) return;
      this[way] = undefined;
      this.error.set(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
    this.busy[way] = false;
    this.changed.set(this.changed.get() + 1);
    if (this.rows.length < 60) void this.read(this.ahead === undefined ? "back" : "ahead"); // a filter may find little
  }

  find(seq: number): number | undefined {
    const first = this.rows[0];
    const last = this.rows.at(-1);
    if (!first || !last) return this.ahead === undefined && this.back === undefined ? -1 : undefined;
    if (seq < first.seq) return this.back === undefined ? -1 : undefined;
    if (seq > last.seq && this.ahead !== undefined) return undefined;
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.rows[middle]!.seq <= seq) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  shifted(): number {
    const n = this.moved;
    this.moved = 0;
    return n;
  }

  push(): void {
    if (this.ahead !== undefined || this.busy.ahead) return;
    // What is new is asked for with the filter, behind what is here.
    this.anchor = this.rows.at(-1)?.seq ?? this.anchor;
    this.ahead = null;
    void this.read("ahead");
  }

  complete(): boolean {
    return this.ahead === undefined && this.back === undefined;
  }

  close(): void {
    this.stop.abort();
  }
}
