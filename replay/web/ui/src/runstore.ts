import { runPath } from "./api";
import { Cell, settle } from "./cell";
import { amend, read } from "./router";
import { offsetText, parse, parseOffset, since } from "./time";
import { NoteStore } from "./notes";
import type { RunDetail } from "./types";

/** A stretch of time, in milliseconds since the run began. */
export interface Range {
  from: number;
  to: number;
}

/**
 * What the parts of a run's page share. Instants are milliseconds since the run began (`began`), with a
 * fraction; `stamp` and `at` make text of them. Parts set cells through the methods, and watch them.
 */
export class RunStore {
  readonly name: string;
  readonly detail: Cell<RunDetail>;
  /** Where the cursor stands; moves up to 60 times a second while it is scrubbed. */
  readonly cursor: Cell<number>;
  /** The cursor once it has rested: what a request to the server is made of. */
  readonly settled: Cell<number>;
  /** The record that is looked at, 0 for none. */
  readonly seq: Cell<number>;
  /** The stretch of time that is marked, if one is. */
  readonly selection: Cell<Range | null>;
  /** What the lanes show; moves up to 60 times a second. */
  readonly view: Cell<Range>;
  /** The view once it has rested. */
  readonly rested: Cell<Range>;
  /** The panel that is shown. */
  readonly panel: Cell<string>;
  /** Grows each time that a panel is to come into sight. */
  readonly shown = new Cell(0);
  /** Grows when a live run has new records: the version for useGet. */
  readonly version = new Cell(0);
  /** The cursor stays at the end of a live run. */
  readonly following: Cell<boolean>;
  /** The end of what is known, in milliseconds since the run began. */
  readonly end: Cell<number>;
  readonly notes: NoteStore;
  private stops: (() => void)[] = [];
  private written = ""; // the address's parameters, as the page wrote them

  constructor(detail: RunDetail, params: URLSearchParams) {
    this.name = detail.run;
    this.detail = new Cell(detail);
    this.notes = new NoteStore(this.path("notes"));
    const end = Math.max(1, detail.end ? since(detail.end, detail.start) : Date.now() - parse(detail.start));
    this.end = new Cell(end);
    const at = this.instant(params.get("at") ?? "");
    this.cursor = new Cell(Number.isFinite(at) ? clamp(at, 0, end) : end);
    this.view = new Cell(this.viewOf(params) ?? { from: 0, to: end });
    this.seq = new Cell(Number(params.get("seq")) || 0);
    this.selection = new Cell<Range | null>(null);
    this.panel = new Cell(params.get("panel") ?? "");
    this.following = new Cell(Boolean(detail.live) && !params.has("at") && !params.has("seq"));
    const settled = settle(this.cursor, 120);
    this.settled = settled.cell;
    const rested = settle(this.view, 120);
    this.rested = rested.cell;
    this.stops.push(settled.stop, rested.stop);
    this.stops.push(this.keepAddress());
  }

  /** The run's beginning as the API gave it. */
  get began(): string {
    return this.detail.get().start;
  }

  /** The path of one of the run's routes: path("state"). */
  path(...rest: (string | number)[]): string {
    return runPath(this.name, ...rest);
  }

  /** An instant as the API's at, from and to take it. */
  at(ms: number): string {
    return offsetText(ms);
  }

  /** Milliseconds since 1970, to be shown with stamp or clock. */
  wall(ms: number): number {
    return parse(this.began) + ms;
  }

  /** Milliseconds since the run began of an RFC 3339 instant or an offset like +1.5s, whose plus a typed address makes a space. */
  instant(text: string): number {
    return parseOffset(text.replace(/^ /, "+"), this.began);
  }

  /** Moves the cursor and, if need be, the view so that it is seen. */
  moveTo(ms: number): void {
    const at = clamp(ms, 0, this.end.get());
    this.following.set(Boolean(this.detail.get().live) && at >= this.end.get());
    this.cursor.set(at);
    const { from, to } = this.view.get();
    if (at < from || at > to) {
      const half = (to - from) / 2;
      this.look({ from: at - half, to: at + half });
    }
  }

  /**
   * The run goes on up to here, as far as is known: a view that showed all of it goes on showing all, a
   * cursor at its end stays there. With `known` an end that was only guessed is put right.
   */
  reach(ms: number, known = false): void {
    const old = this.end.get();
    if (!(ms > old || (known && ms > 0 && ms !== old))) return;
    const { from, to } = this.view.get();
    const whole = from <= 0 && to >= old;
    this.end.set(ms);
    if (whole || to > ms) this.view.set({ from: Math.min(from, ms / 2), to: ms });
    if (this.following.get() || this.cursor.get() > ms) this.cursor.set(ms);
  }

  /** Looks at a record: selects it and, where its time is known, puts the cursor there. */
  open(seq: number, time?: string | number, panel?: string): void {
    this.seq.set(seq);
    if (time !== undefined) this.moveTo(typeof time === "number" ? time : this.instant(time));
    if (panel !== undefined) this.show(panel);
  }

  /** Opens a record that was clicked on: the panel shows it, unless another was chosen that follows the record. */
  visit(seq: number, ms: number): void {
    const panel = this.panel.get();
    this.open(seq, ms, panel === "" || panel === "state" ? "record" : undefined);
  }

  /** Marks the stretch between two instants; none if they are one. */
  mark(a: number, b: number): void {
    const from = Math.max(0, Math.min(a, b));
    const to = Math.min(this.end.get(), Math.max(a, b));
    this.selection.set(from < to ? { from, to } : null);
  }

  /** Shows a panel, and in a small window scrolls to it. */
  show(panel: string): void {
    this.panel.set(panel);
    this.shown.set(this.shown.get() + 1);
  }

  /** Changes what the lanes show, within the run and no closer than 50 µs. */
  look(range: Range): void {
    const end = this.end.get();
    const width = clamp(range.to - range.from, Math.min(0.05, end), end);
    const from = clamp(range.from, 0, end - width);
    const now = this.view.get();
    if (from !== now.from || from + width !== now.to) this.view.set({ from, to: from + width });
  }

  private viewOf(params: URLSearchParams): Range | null {
    const view = { from: this.instant(params.get("from") ?? ""), to: this.instant(params.get("to") ?? "") };
    return view.from < view.to ? view : null;
  }

  /** Follows an address that was not set here: a link, or the back button. Reports whether it names a record without an instant. */
  follow(params: URLSearchParams): boolean {
    if (params.toString() === this.written) return false;
    this.written = params.toString();
    const seq = Number(params.get("seq")) || 0;
    this.seq.set(seq);
    const view = this.viewOf(params);
    if (view) this.look(view);
    const at = this.instant(params.get("at") ?? "");
    if (Number.isFinite(at)) this.moveTo(at);
    const panel = params.get("panel");
    if (panel) this.panel.set(panel);
    return seq > 0 && !Number.isFinite(at);
  }

  close(): void {
    this.notes.close();
    for (const stop of this.stops) stop();
  }

  /** Writes what is looked at into the address, once it has rested. */
  private keepAddress(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const write = () => {
      if (read(location.hash).params.toString() !== this.written) return later(); // another was set, which is followed first
      const end = this.end.get();
      const { from, to } = this.view.get();
      const whole = from <= 0 && to >= end;
      amend({
        seq: this.seq.get() || undefined,
        at: this.cursor.get() >= end && !this.seq.get() ? undefined : this.at(this.cursor.get()),
        from: whole ? undefined : this.at(from),
        to: whole ? undefined : this.at(to),
        panel: this.panel.get() || undefined,
      }, (params) => (this.written = params));
    };
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(write, 400);
    };
    const stops = [this.cursor, this.seq, this.view, this.panel].map((cell) => (cell as Cell<unknown>).watch(later));
    return () => {
      clearTimeout(timer);
      for (const stop of stops) stop();
    };
  }
}

export const clamp = (n: number, low: number, high: number) => Math.min(Math.max(n, low), Math.max(low, high));
