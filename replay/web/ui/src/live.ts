import { get, href } from "./api";
import { Cell, looked } from "./cell";
import type { RunStore } from "./runstore";
import type { RecordRow, RunDetail, RunItem } from "./types";

export type LiveState = "off" | "live" | "reconnecting";

/**
 * What a running run writes, as it is written.
 *
 *	off --open--> live --broken--> reconnecting --open--> live --end--> off
 */
export class Live {
  readonly state = new Cell<LiveState>("off");
  private source: EventSource | undefined;
  private timers = new Set<ReturnType<typeof setTimeout>>();
  private watchers = new Set<(rows: RecordRow[]) => void>();
  private last: number;
  private due = false;
  private closed = false;

  constructor(private run: RunStore) {
    this.last = run.detail.get().last_seq;
    if (run.detail.get().live) this.open();
  }

  /** Calls watcher with new records until the returned function is called. */
  watch = (watcher: (rows: RecordRow[]) => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private open(): void {
    const source = new EventSource(href(this.run.path("live"), { after: this.last }));
    this.source = source;
    source.onopen = () => this.state.set("live");
    source.onerror = () => {
      this.state.set("reconnecting");
      if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      this.later(() => this.open(), 3000);
    };
    source.addEventListener("records", (e) => this.records((JSON.parse((e as MessageEvent<string>).data) as { records: RecordRow[] }).records));
    source.addEventListener("run", (e) => {
      const item = JSON.parse((e as MessageEvent<string>).data) as RunItem;
      this.run.detail.set({ ...this.run.detail.get(), ...item });
    });
    source.addEventListener("end", () => {
      source.close();
      this.state.set("off");
      this.refresh();
    });
  }

  private records(rows: RecordRow[]): void {
    rows = rows.filter((row) => row.seq > this.last);
    const newest = rows.at(-1);
    if (!newest) return;
    this.last = newest.seq;
    for (const watcher of this.watchers) watcher(rows);
    const time = newest.record?.time;
    if (time) this.run.reach(this.run.instant(time));
    if (this.due) return;
    this.due = true;
    this.later(() => {
      void looked().then(() => {
        this.due = false;
        if (!this.closed) this.refresh();
      });
    }, 2000);
  }

  /** Brings the header up to date and tells the panels to ask again. */
  private refresh(): void {
    get<RunDetail>(this.run.path()).then(
      (detail) => {
        this.run.detail.set(detail);
        if (detail.end) this.run.reach(this.run.instant(detail.end));
      },
      () => undefined,
    );
    this.run.version.set(this.run.version.get() + 1);
  }

  private later(what: () => void, ms: number): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      what();
    }, ms);
    this.timers.add(timer);
  }

  close(): void {
    this.closed = true;
    this.source?.close();
    for (const timer of this.timers) clearTimeout(timer);
  }
}
