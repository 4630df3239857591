import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Cell, useCell } from "../cell";
import { classes, Seen } from "../components/basic";
import { Empty, ErrorBox } from "../components/boxes";
import { Space } from "../components/table";
import { useWindow } from "../components/window";
import * as prefs from "../prefs";
import type { SeqIndex } from "../lanes/index";
import type { RunStore } from "../runstore";
import { tagsOf } from "../notes";
import { Marked } from "../screens/words";
import { clip, flat, plural, stretches } from "../text";
import { clock, full, parse } from "../time";
import type { Mark, RecordRow, RunRecord } from "../types";
import { describe } from "./describe";
import { BySeq, Filtered, type Filter, narrows, type Source } from "./source";

const height = 24;
const head = 26;

/** The records of a run, as many as there may be, in step with the cursor. */
export function RecordList({ run, filter, index, live }: {
  run: RunStore;
  filter: Filter;
  index: Cell<SeqIndex>;
  live: (watch: (rows: RecordRow[]) => void) => () => void;
}) {
  const source = useMemo<Source>(
    () => (narrows(filter) ? new Filtered(run, filter, index.get().seqAt(run.cursor.get())) : new BySeq(run)),
    [run, JSON.stringify(filter)],
  );
  useEffect(() => () => source.close(), [source]);
  useEffect(() => live((rows) => source.push(rows)), [source, live]);
  return <List key={JSON.stringify(filter)} run={run} source={source} filter={filter} index={index} />;
}

function List({ run, source, filter, index }: { run: RunStore; source: Source; filter: Filter; index: Cell<SeqIndex> }) {
  const changed = useCell(source.changed);
  const error = useCell(source.error);
  const selected = useCell(run.seq);
  const size = source.size();
  const sight = useWindow(size, height, head);
  const [mark, setMark] = useState(-1);
  const { now, release } = useStep(run, source, sight.reveal, index, changed);
  useEffect(() => source.want(sight.first, sight.last), [source, sight.first, sight.last, changed]);
  useEffect(() => {
    const by = source.shifted();
    if (by && sight.box.current) sight.box.current.scrollTop += by * height;
  }, [changed]);
  useReveal(run, source, selected, sight.reveal, setMark, changed);

  const open = (index: number) => {
    setMark(index);
    const row = source.row(index);
    if (row?.record) run.visit(row.seq, run.instant(row.record.time));
    else if (row) run.open(row.seq, undefined, "record");
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const at = mark < 0 ? (now ?? 0) : mark;
    const steps: Record<string, number> = {
      ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - sight.page, PageDown: at + sight.page, Home: 0, End: size - 1,
    };
    if (e.key === "Enter" || e.key === " ") {
      e.preventDefault();
      open(at);
      return;
    }
    const next = steps[e.key];
    if (next === undefined || size === 0) return;
    e.preventDefault();
    release();
    const index = Math.min(Math.max(next, 0), size - 1);
    setMark(index);
    sight.reveal(index);
  };
  const rows = [];
  for (let index = sight.first; index < sight.last; index++) {
    rows.push(<Row key={index} index={index} row={source.row(index)} run={run} marked={index === mark} now={now} selected={selected} open={open} />);
  }
  return (
    <div class="records" ref={sight.box} role="grid" tabIndex={0} aria-label="Records" aria-rowcount={size + 1} onKeyDown={onKeyDown} onScroll={sight.onScroll} onWheel={release} onPointerDown={release}
      aria-activedescendant={mark >= sight.first && mark < sight.last ? `record-${mark}` : undefined}>
      <div class="rhead" role="row" aria-rowindex={1}>
        <span role="columnheader">Time</span><span role="columnheader" class="right">Seq</span><span role="columnheader">Seen by</span>
        <span role="columnheader">Kind</span><span role="columnheader">What</span><span role="columnheader">Verdict</span>
      </div>
      <Space px={sight.first * height} />
      {rows}
      <Space px={(size - sight.last) * height} />
      {error && <ErrorBox error={error} retry={() => source.around(index.get().seqAt(run.cursor.get()))} />}
      {size === 0 && !error && (source.complete()
        ? <Empty title={narrows(filter) ? "No record matches" : "There are no records yet"}>{narrows(filter) ? "Remove a filter, or search for less." : "New records appear here."}</Empty>
        : <p class="muted pad" role="status">Reading the records…</p>)}
      {size > 0 && !source.complete() && <p class="muted pad">More is read as you scroll.</p>}
    </div>
  );
}

/**
 * Keeps the list where the cursor is, until it is scrolled by hand (release) and the cursor moves again.
 * now is the index of the last record up to the cursor.
 */
function useStep(run: RunStore, source: Source, reveal: (index: number, middle?: boolean) => void, index: Cell<SeqIndex>, changed: number) {
  const [now, setNow] = useState<number | undefined>(undefined);
  const known = useCell(index);
  const held = useRef(true);
  const asked = useRef(-1);
  const latest = useRef(reveal);
  latest.current = reveal;
  const follow = () => {
    const at = run.cursor.get();
    const found = source.find(index.get().seqAt(at));
    if (found === undefined) return false;
    const place = refine(source, found, at, run);
    setNow(place);
    if (held.current) latest.current(Math.max(0, place), true);
    return true;
  };
  useEffect(() => {
    let frame = 0;
    const later = () => {
      held.current = true;
      if (!frame) frame = requestAnimationFrame(() => ((frame = 0), follow()));
    };
    later();
    const stops = [
      run.cursor.watch(later),
      run.settled.watch((at) => {
        if (follow() || asked.current === at) return;
        asked.current = at;
        source.around(index.get().seqAt(at));
      }),
    ];
    return () => {
      cancelAnimationFrame(frame);
      for (const stop of stops) stop();
    };
  }, [run, source]);
  useEffect(() => void follow(), [changed, known]); // new rows may know it better
  return { now, release: () => (held.current = false) };
}

/** Goes from a record near an instant to the last one up to it, as far as records are here. */
function refine(source: Source, index: number, at: number, run: RunStore): number {
  let best = index;
  const late = (i: number) => {
    const row = source.row(i);
    return row ? timeOf(row, run) > at + 0.001 : false;
  };
  while (best > 0 && late(best)) best--;
  index = best;
  for (let i = Math.max(0, index); i < source.size() && i < index + 1000; i++) {
    const row = source.row(i);
    if (row === undefined) break;
    if (!row?.record) continue;
    if (timeOf(row, run) > at + 0.001) break;
    best = i;
  }
  return best;
}

const times = new WeakMap<RecordRow, number>();

/** When a record was, in milliseconds since the run began; NaN where it does not say. */
function timeOf(row: RecordRow, run: RunStore): number {
  let ms = times.get(row);
  if (ms === undefined) times.set(row, (ms = run.instant(row.record?.time ?? "")));
  return ms;
}

/** Shows the record that was selected elsewhere. */
function useReveal(run: RunStore, source: Source, seq: number, reveal: (index: number, middle?: boolean) => void, mark: (index: number) => void, changed: number): void {
  const shown = useRef(0);
  useEffect(() => {
    if (!seq || shown.current === seq) return;
    const index = source.find(seq);
    if (index === undefined || index < 0) return;
    shown.current = seq;
    mark(index);
    // After the list has followed the cursor to the same instant.
    const frame = requestAnimationFrame(() => requestAnimationFrame(() => reveal(index, true)));
    return () => cancelAnimationFrame(frame);
  }, [run, source, seq, changed]);
}

function Row({ index, row, run, marked, now, selected, open }: {
  index: number;
  row: RecordRow | null | undefined;
  run: RunStore;
  marked: boolean;
  now: number | undefined;
  selected: number;
  open: (index: number) => void;
}) {
  const name = classes("rrow", index % 2 === 1 && "odd", marked && "mark", row?.seq === selected && selected > 0 && "selected", now !== undefined && index > now && "later",
    index === now && "now", row?.record?.observer === "guest" && "guest");
  const props = { id: `record-${index}`, role: "row" as const, class: name, "aria-rowindex": index + 2, "aria-selected": row?.seq === selected && selected > 0, onClick: () => open(index) };
  if (row === undefined) return <div {...props}><span role="gridcell" class="wait">…</span></div>;
  if (row === null) return <div {...props}><span role="gridcell" /><span role="gridcell" class="right num">{index + 1}</span><span role="gridcell" class="whole warn">There is no record of this number in the store</span></div>;
  if (row.erased) return <div {...props}><span role="gridcell" /><span role="gridcell" class="right num">{row.seq}</span><span role="gridcell" class="whole muted"><Marked mark={row.verification} />Erased: only its hash is left, and still proves its place</span></div>;
  if (!row.record) return <div {...props}><span role="gridcell" /><span role="gridcell" class="right num">{row.seq}</span><span role="gridcell" class="whole bad"><Marked mark={row.verification} />This record cannot be read</span></div>;
  return <div {...props}><Cells record={row.record} mark={row.verification} run={run} /></div>;
}

/** How many notes there are on a record, as a mark before its text. */
function Noted({ run, seq }: { run: RunStore; seq: number }) {
  useCell(run.notes.notes);
  const notes = run.notes.of(seq).filter((n) => !n.withdrawn);
  if (notes.length === 0) return null;
  return <span class="noted" title={flat([plural(notes.length, "note"), ...tagsOf(notes).map((t) => `#${t}`)].join(" "))}><span class="sr">{plural(notes.length, "note")}: </span><span aria-hidden="true">✎{notes.length > 1 ? notes.length : ""}</span></span>;
}

function Cells({ record: r, mark, run }: { record: RunRecord; mark: Mark | undefined; run: RunStore }) {
  const zone = useCell(prefs.zone);
  const d = useMemo(() => describe(r), [r]);
  return (
    <>
      <span role="gridcell" class="num" title={`${full(r.time, "utc")}\n${full(r.time, "local")}`}>{clock(parse(r.time), zone)}</span>
      <span role="gridcell" class="right num muted">{r.seq}</span>
      <span role="gridcell"><Seen by={r.observer} short /></span>
      <span role="gridcell" class={`rkind k-${r.kind}`}>{r.kind}</span>
      <span role="gridcell" class={classes("what mono", d.tone && `t-${d.tone}`)}><Marked mark={mark} /><Noted run={run} seq={r.seq} /><bdi dir="ltr">{line(d.words)}</bdi></span>
      <span role="gridcell">{d.verdict ? <span class={`mood ${d.verdict === "allow" ? "ok" : "deny"}`}>{d.verdict === "allow" ? "allowed" : "denied"}</span> : null}</span>
    </>
  );
}

function line(words: string) {
  const { text, cut } = clip(words, 300);
  const parts = stretches(text).map((s) => (s.escape ? <span class="escape">{s.text}</span> : s.text));
  return cut ? [...parts, "…"] : parts;
}
