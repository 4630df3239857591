import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Problem } from "../api";
import { type Cell, useCell } from "../cell";
import { ErrorBox } from "../components/boxes";
import * as prefs from "../prefs";
import type { Range, RunStore } from "../runstore";
import { clock, offsetText, parse } from "../time";
import type { Lanes } from "../types";
import { colorsOf, draw, type Scene } from "./draw";
import { type Hit, hit, instant, known, layout, needed, panned, place, type Row, summary, zoomed } from "./geometry";
import { SeqIndex } from "./index";
import type { Source } from "./source";
import { Tip } from "./tip";
import { Under } from "./under";

const names = Object.keys(known);

/** The run over time. */
export function LanesView({ run, index }: { run: RunStore; index: Cell<SeqIndex> }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0); // not known yet
  const source = useLanes(run, width);
  const rows = useRows(source.data, source.whole);
  useEffect(() => {
    index.set(new SeqIndex([source.whole, source.data], run.end.get(), run.detail.get().last_seq));
  }, [source.data, source.whole]);
  const [over, setOver] = useState<{ hit: Hit; x: number; y: number } | null>(null);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.max(100, Math.floor(entry!.contentRect.width))));
    watcher.observe(plot.current!);
    return () => watcher.disconnect();
  }, []);
  usePicture(run, canvas, source, rows, width);
  const latest = useRef({ source, rows, width });
  latest.current = { source, rows, width };
  const actions = useMemo(() => new Actions(run, () => latest.current, setOver), [run]);
  useEffect(() => actions.attach(plot.current!), [actions]);

  return (
    <section class="lanes" aria-label="The run over time">
      <div class="gutter" aria-hidden="true">
        <Zoom run={run} />
        {rows.lanes.map((row) => (
          <div class="lane-name" style={{ top: `${row.top}px`, height: `${row.height}px` }} title={known[row.name]?.seen === "host" ? "Seen by the host" : "Claimed by the guest"}>
            <span>{known[row.name]?.title ?? row.name}</span>
            <small>{known[row.name]?.seen === "host" ? "" : "guest claims"}{row.more > 0 && <b title={`${row.more} more rows share the last one: zoom in`}> +{row.more}</b>}</small>
          </div>
        ))}
      </div>
      <div class="plot" ref={plot} style={{ height: `${rows.height}px` }}>
        <canvas ref={canvas} aria-hidden="true" />
        <Selection run={run} width={width} />
        <Marker run={run} source={source} rows={rows.lanes} width={width} />
        <Cursor run={run} source={source} width={width} actions={actions} />
        {over && <Tip run={run} over={over} end={source.data?.end ?? run.end.get()} width={width} />}
        {source.error && !source.data && !source.whole && <div class="over-plot"><ErrorBox error={source.error} retry={source.reload} /></div>}
      </div>
      <Under run={run} source={source} width={width} />
    </section>
  );
}

/** Asks for what the view shows and half as much on both sides, once the view has rested. */
function useLanes(run: RunStore, width: number): Source {
  const version = useCell(run.version);
  const [state, setState] = useState<Omit<Source, "reload">>({ data: undefined, whole: undefined, error: undefined });
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (!width) return;
    const stop = new AbortController();
    get<Lanes>(run.path("lanes"), { columns: columnsFor(width) }, stop.signal).then(
      (whole) => {
        if (whole.live) run.reach(whole.end, !state.whole);
        setState((s) => ({ ...s, whole, error: undefined, data: s.data && s.data.from <= 0 && s.data.to >= s.data.end ? undefined : s.data }));
      },
      (error: unknown) => !stop.signal.aborted && setState((s) => ({ ...s, error: asProblem(error) })),
    );
    return () => stop.abort();
  }, [run, version, width, again]);
  useEffect(() => {
    if (!width) return;
    let stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = () => {
      const view = run.view.get();
      stop.abort();
      if (view.from <= 0 && view.to >= run.end.get()) {
        setState((s) => ({ ...s, data: undefined }));
        return;
      }
      stop = new AbortController();
      const { signal } = stop;
      const wide = widened(view, run.end.get());
      const columns = columnsFor(width * ((wide.to - wide.from) / (view.to - view.from)));
      get<Lanes>(run.path("lanes"), { from: offsetText(wide.from), to: offsetText(wide.to), columns }, signal).then(
        (data) => setState((s) => ({ ...s, data, error: undefined })),
        (error: unknown) => !signal.aborted && setState((s) => ({ ...s, error: asProblem(error) })),
      );
    };
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(ask, 120);
    };
    ask();
    const unwatch = run.view.watch(later);
    return () => {
      unwatch();
      clearTimeout(timer);
      stop.abort();
    };
  }, [run, version, width, again]);
  return { ...state, reload: () => setAgain((n) => n + 1) };
}

const asProblem = (e: unknown) => (e instanceof Problem ? e : new Problem({ title: "The lanes could not be read", detail: String(e) }));
const columnsFor = (width: number) => Math.min(2000, Math.max(50, Math.round(width / 2 / 50) * 50));

function widened(view: Range, end: number): Range {
  const half = (view.to - view.from) / 2;
  return { from: Math.max(0, view.from - half), to: Math.min(end, view.to + half) };
}

/** The lanes' places, which never get lower while the run is shown. */
function useRows(data: Lanes | undefined, whole: Lanes | undefined): { lanes: Row[]; height: number } {
  const rows = useRef(new Map<string, number>());
  return useMemo(() => {
    for (const one of [whole, data]) if (one) needed(rows.current, one.lanes);
    return layout(names, rows.current);
  }, [data, whole]);
}

/** Draws when something that is drawn has changed, at most once a frame, and never waits for an answer. */
function usePicture(run: RunStore, canvas: { current: HTMLCanvasElement | null }, source: Source, rows: { lanes: Row[]; height: number }, width: number): void {
  const zone = useCell(prefs.zone);
  const dark = useCell(prefs.dark);
  useLayoutEffect(() => {
    const element = canvas.current!;
    const ratio = Math.max(1, devicePixelRatio);
    element.width = Math.round(width * ratio);
    element.height = Math.round(rows.height * ratio);
    element.style.width = `${width}px`;
    element.style.height = `${rows.height}px`;
    const ctx = element.getContext("2d", { alpha: false })!;
    const colors = colorsOf(element);
    const scene = (): Scene => ({
      data: source.data, whole: source.whole, rows: rows.lanes, view: run.view.get(), width, height: rows.height,
      began: parse(run.began), end: run.end.get(), zone, colors,
    });
    let frame = 0;
    const paint = () => {
      frame = 0;
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      draw(ctx, scene());
    };
    const later = () => {
      if (!frame) frame = requestAnimationFrame(paint);
    };
    paint();
    const stops = [run.view.watch(later), run.end.watch(later)];
    return () => {
      cancelAnimationFrame(frame);
      for (const stop of stops) stop();
    };
  }, [run, source.data, source.whole, rows, width, zone, dark]);
}

/** The line that is scrubbed: a slider, which is what it is. It moves without a new picture. */
function Cursor({ run, source, width, actions }: { run: RunStore; source: Source; width: number; actions: Actions }) {
  const line = useRef<HTMLDivElement>(null);
  const time = useRef<HTMLSpanElement>(null);
  const zone = useCell(prefs.zone);
  const settled = useCell(run.settled);
  const end = useCell(run.end);
  useLayoutEffect(() => {
    const move = () => {
      const x = place(run.cursor.get(), run.view.get(), width);
      // Out of sight it waits at the edge, where keys still reach it.
      const before = x < -0.5;
      const after = x > width + 0.5;
      line.current!.style.transform = `translateX(${before ? 0 : after ? width : x}px)`;
      line.current!.classList.toggle("out", before || after);
      time.current!.classList.toggle("left", x > width - 110);
      time.current!.textContent = `${before ? "‹ " : ""}${clock(run.wall(run.cursor.get()), zone)}${after ? " ›" : ""}`;
    };
    move();
    const stops = [run.cursor.watch(move), run.view.watch(move)];
    return () => stops.forEach((stop) => stop());
  }, [run, width, zone]);
  const data = source.data ?? source.whole;
  const view = useCell(run.rested);
  const words = data ? summary(data, settled, ((view.to - view.from) / width) * 4) : "";
  return (
    <div class="cursor" ref={line} role="slider" tabIndex={0} aria-label="Cursor in time" aria-valuemin={0} aria-valuemax={Math.round(end)}
      aria-valuenow={Math.round(settled)} aria-valuetext={`${clock(run.wall(settled), zone)}, ${offsetText(settled)} from the start: ${words}`}
      onKeyDown={(e) => actions.key(e)}>
      <span class="cursor-time num" ref={time} />
    </div>
  );
}

/** The stretch that is marked. */
function Selection({ run, width }: { run: RunStore; width: number }) {
  const selection = useCell(run.selection);
  const view = useCell(run.view);
  if (!selection) return null;
  const left = place(selection.from, view, width);
  const right = place(selection.to, view, width);
  return <div class="selection" style={{ transform: `translateX(${left}px)`, width: `${Math.max(right - left, 1)}px` }} />;
}

/** A ring around the record that is looked at. */
function Marker({ run, source, rows, width }: { run: RunStore; source: Source; rows: Row[]; width: number }) {
  const seq = useCell(run.seq);
  const view = useCell(run.view);
  if (!seq) return null;
  for (const data of [source.data, source.whole]) {
    for (const lane of data?.lanes ?? []) {
      const item = lane.items.find((i) => i.seq === seq);
      const row = rows.find((r) => r.name === lane.name);
      if (!item || !row) continue;
      const x = place(item.at, view, width);
      if (x < 0 || x > width) return null;
      return <div class="marker" style={{ transform: `translate(${x - 8}px, ${row.top}px)`, height: `${row.height}px` }} />;
    }
  }
  return null;
}

function Zoom({ run }: { run: RunStore }) {
  const about = () => {
    const { from, to } = run.view.get();
    const at = run.cursor.get();
    return at >= from && at <= to ? at : (from + to) / 2;
  };
  return (
    <div class="zoom">
      <button type="button" tabIndex={-1} title="Zoom out (-)" onClick={() => run.look(zoomed(run.view.get(), 2, about()))}>−</button>
      <button type="button" tabIndex={-1} title="Zoom in (+)" onClick={() => run.look(zoomed(run.view.get(), 0.5, about()))}>+</button>
      <button type="button" tabIndex={-1} title="The whole run (0)" onClick={() => run.look({ from: 0, to: run.end.get() })}>all</button>
    </div>
  );
}

/** What mouse and keys do to the picture. */
export class Actions {
  constructor(
    private run: RunStore,
    private now: () => { source: Source; rows: { lanes: Row[] }; width: number },
    private show: (over: { hit: Hit; x: number; y: number } | null) => void,
  ) {}

  attach(plot: HTMLElement): () => void {
    const stop = new AbortController();
    const options = { signal: stop.signal };
    plot.addEventListener("wheel", (e) => this.wheel(e, plot), { ...options, passive: false });
    plot.addEventListener("pointerdown", (e) => this.down(e, plot), options);
    plot.addEventListener("pointermove", (e) => this.hover(e, plot), options);
    plot.addEventListener("pointerleave", () => this.show(null), options);
    return () => stop.abort();
  }

  private at(x: number): number {
    return instant(x, this.run.view.get(), this.now().width);
  }

  private find(x: number, y: number): Hit | undefined {
    const { source, rows, width } = this.now();
    const view = this.run.view.get();
    const data = source.data && source.data.from <= view.from && (source.data.to >= view.to || source.data.to >= source.data.end) ? source.data : source.whole;
    return data && hit(data, rows.lanes, view, width, x, y);
  }

  private wheel(e: WheelEvent, plot: HTMLElement): void {
    e.preventDefault();
    const view = this.run.view.get();
    const unit = e.deltaMode === 1 ? 16 : 1;
    const sideways = e.shiftKey ? e.deltaY || e.deltaX : Math.abs(e.deltaX) > Math.abs(e.deltaY) ? e.deltaX : 0;
    if (sideways) {
      this.run.look(panned(view, ((sideways * unit) / this.now().width) * (view.to - view.from)));
      return;
    }
    const x = e.clientX - plot.getBoundingClientRect().left;
    this.run.look(zoomed(view, Math.exp(e.deltaY * unit * 0.002), this.at(x)));
  }

  /** Shift marks, the axis and the cursor scrub, elsewhere a drag moves the view; a click is no drag. */
  private down(e: PointerEvent, plot: HTMLElement): void {
    if (e.button !== 0 || (e.target as Element).closest("button, a, .tip")) return;
    const box = plot.getBoundingClientRect();
    const start = { x: e.clientX - box.left, y: e.clientY - box.top };
    const from = this.run.view.get();
    const onCursor = Math.abs(place(this.run.cursor.get(), from, this.now().width) - start.x) < 5;
    const what = e.shiftKey ? "mark" : start.y < 22 || onCursor ? "scrub" : "pan";
    let dragged = false;
    plot.setPointerCapture(e.pointerId);
    plot.querySelector<HTMLElement>(".cursor")?.focus({ preventScroll: true });
    e.preventDefault();
    if (what === "scrub") this.run.moveTo(this.at(start.x));
    const move = (e: PointerEvent) => {
      const x = e.clientX - box.left;
      dragged ||= Math.abs(x - start.x) > 3;
      if (!dragged) return;
      this.show(null);
      if (what === "scrub") this.run.moveTo(instant(Math.min(Math.max(x, 0), this.now().width), this.run.view.get(), this.now().width));
      else if (what === "mark") this.run.mark(this.at(start.x), this.at(x));
      else this.run.look(panned(from, ((start.x - x) / this.now().width) * (from.to - from.from)));
    };
    const end = (e: PointerEvent) => {
      stop.abort();
      if (!dragged && what === "pan" && e.type === "pointerup") this.click(start.x, start.y);
      if (!dragged && what === "mark") this.run.selection.set(null);
    };
    const stop = new AbortController();
    plot.addEventListener("pointermove", move, { signal: stop.signal });
    plot.addEventListener("pointerup", end, { signal: stop.signal });
    plot.addEventListener("pointercancel", end, { signal: stop.signal });
  }

  private click(x: number, y: number): void {
    const found = this.find(x, y);
    if (found?.item) this.run.visit(found.item.seq, Math.max(0, this.at(x)));
    else if (found?.bucket) this.run.visit(found.bucket.seq, found.bucket.at);
    else if (found?.hole?.seq) this.run.visit(found.hole.seq, Math.max(found.hole.from, this.at(x)));
    else this.run.moveTo(this.at(x));
  }

  private hover(e: PointerEvent, plot: HTMLElement): void {
    if (e.buttons) return;
    const box = plot.getBoundingClientRect();
    const x = e.clientX - box.left;
    const y = e.clientY - box.top;
    const found = this.find(x, y);
    plot.classList.toggle("on-item", Boolean(found));
    this.show(found ? { hit: found, x, y } : null);
  }

  /** Keys of the cursor. */
  key(e: KeyboardEvent): void {
    const run = this.run;
    const view = run.view.get();
    const span = view.to - view.from;
    const at = run.cursor.get();
    const step = span / (e.shiftKey ? 10 : 200);
    const keys: Record<string, () => void> = {
      ArrowLeft: () => run.moveTo(at - step),
      ArrowRight: () => run.moveTo(at + step),
      Home: () => run.moveTo(0),
      End: () => run.moveTo(run.end.get()),
      PageUp: () => this.page(-0.8),
      PageDown: () => this.page(0.8),
      ArrowUp: () => this.next(-1),
      ArrowDown: () => this.next(1),
      "+": () => run.look(zoomed(view, 0.5, at)),
      "=": () => run.look(zoomed(view, 0.5, at)),
      "-": () => run.look(zoomed(view, 2, at)),
      "0": () => run.look({ from: 0, to: run.end.get() }),
      "[": () => run.mark(at, run.selection.get()?.to ?? run.end.get()),
      "]": () => run.mark(run.selection.get()?.from ?? 0, at),
      Escape: () => run.selection.set(null),
    };
    const act = keys[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  }

  private page(by: number): void {
    const view = this.run.view.get();
    const shift = by * (view.to - view.from);
    this.run.look(panned(view, shift));
    this.run.moveTo(this.run.cursor.get() + shift);
  }

  /** Goes to the nearest item before or after the cursor, in any lane. */
  private next(by: number): void {
    const { source } = this.now();
    const data = source.data ?? source.whole;
    const at = this.run.cursor.get();
    let best: { seq: number; at: number } | undefined;
    const current = this.run.seq.get();
    for (const lane of data?.lanes ?? []) {
      for (const item of [...lane.items, ...lane.buckets]) {
        const ahead = by > 0 ? item.at > at || (item.at === at && item.seq > current) : item.at < at || (item.at === at && item.seq < current);
        const nearer = !best || (by > 0 ? item.at < best.at || (item.at === best.at && item.seq < best.seq) : item.at > best.at || (item.at === best.at && item.seq > best.seq));
        if (ahead && nearer && item.seq) best = item;
      }
    }
    if (best) this.run.visit(best.seq, best.at);
  }
}
