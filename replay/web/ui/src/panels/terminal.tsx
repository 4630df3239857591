import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Problem } from "../api";
import { useCell } from "../cell";
import { Badge } from "../components/basic";
import { Empty, ErrorBox, Loading } from "../components/boxes";
import type { RunStore } from "../runstore";
import { bytes, flat } from "../text";
import { span } from "../time";
import type { Piece } from "../types";
import { Choice, Seq } from "./shared";
import { Screen, type Row } from "./terminal/screen";
import { Tape } from "./terminal/tape";

/** Output that is kept here at most, in characters. */
const most = 24 << 20;
const streams = ["stdout", "stderr", "tty"] as const;

/** What the terminal showed at the cursor, and a way to watch it again. */
export default function TerminalPanel({ run }: { run: RunStore }) {
  const out = useOutput(run);
  const detail = useCell(run.detail);
  const [step, setStep] = useState("");
  const [which, setWhich] = useState<"both" | "stdout" | "stderr">("both");
  const [chosen, setChosen] = useState(0);
  const [fitting, setFitting] = useState(80);
  const tape = useMemo(() => new Tape({ step, streams: new Set(which === "both" ? streams : which === "stdout" ? ["stdout", "tty"] : ["stderr"]) }), [step, which]);
  tape.grow(out.pieces);
  if (out.error && out.pieces.length === 0) return <ErrorBox error={out.error} retry={out.again} />;
  if (!out.done && out.pieces.length === 0) return <Loading what="Fetching the output" />;
  if (out.done && out.pieces.length === 0) {
    return <Empty title="No output was recorded">{detail.live ? "The steps' output is shown here as it arrives." : "The steps of this run wrote no output, or record.output allows none."}</Empty>;
  }
  const steps = [...new Set(out.pieces.map((p) => p.step))];
  return (
    <div class="panel terminal">
      <div class="controls">
        <label>Step <select value={step} onChange={(e) => setStep(e.currentTarget.value)}>
          <option value="">all</option>{steps.map((s) => <option value={s}>{flat(s) || "(none)"}</option>)}
        </select></label>
        <Choice name="Streams" value={which} set={setWhich} options={[["both", "both"], ["stdout", "stdout"], ["stderr", "stderr"]]} />
        <label>Columns <select value={chosen} onChange={(e) => setChosen(Number(e.currentTarget.value))}>{[0, 80, 100, 132, 200].map((n) => <option value={n}>{n || `fit (${fitting})`}</option>)}</select></label>
      </div>
      <Player run={run} tape={tape} />
      <Shown run={run} tape={tape} known={tape.length} columns={chosen || fitting} fit={setFitting} pipe={!out.pieces.some((p) => p.stream === "tty")} />
      {out.capped && <p class="note"><Badge tone="warn">not all</Badge> Only the first {bytes(most)} of the output are shown here. Export the run as asciicast or CSV for all of it.</p>}
      {out.error && <p class="note bad" role="alert">{flat(out.error.message)} <button type="button" class="link" onClick={out.again}>Continue</button></p>}
      <p class="muted small">The guest chose this output; it is redacted. Links, titles and the clipboard have no effect here. A dot replaces an invisible character, and hidden text is shown.</p>
    </div>
  );
}

interface Out {
  pieces: Piece[];
  done: boolean;
  capped: boolean;
  error?: Problem | undefined;
  again: () => void;
}

/** All output of the run, page by page, and what a live run adds. The list only grows. */
function useOutput(run: RunStore): Out {
  const version = useCell(run.version);
  const known = useRef<{ pieces: Piece[]; after: number; size: number }>({ pieces: [], after: 0, size: 0 });
  const [state, setState] = useState<{ done: boolean; capped: boolean; error?: Problem | undefined }>({ done: false, capped: false });
  const [tries, setTries] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    const fetchAll = async () => {
      const k = known.current;
      while (k.size < most) {
        const page = await get<{ pieces: Piece[]; next?: string | number }>(run.path("output"), { after: k.after || undefined, limit: 1000 }, stop.signal);
        if (stop.signal.aborted) return;
        for (const p of page.pieces) k.size += typeof p.text === "string" ? p.text.length : p.text.base64.length;
        k.pieces = page.pieces.length ? k.pieces.concat(page.pieces) : k.pieces;
        k.after = Math.max(k.after, page.pieces.at(-1)?.seq ?? 0, Number(page.next ?? 0) || 0);
        const more = Boolean(page.next) && page.pieces.length > 0;
        setState({ done: !more, capped: k.size >= most && more });
        if (!more) return;
      }
    };
    fetchAll().catch((e: unknown) => {
      if (!stop.signal.aborted) setState({ done: true, capped: false, error: e instanceof Problem ? e : new Problem({ detail: String(e) }) });
    });
    return () => stop.abort();
  }, [run, version, tries]);
  return { ...state, pieces: known.current.pieces, again: () => setTries(tries + 1) };
}

/** The screen at the cursor. Going on feeds what is new; going back begins again, a bounded way before. */
function Shown({ run, tape, known, columns, fit, pipe }: { run: RunStore; tape: Tape; known: number; columns: number; fit: (columns: number) => void; pipe: boolean }) {
  const [view, setView] = useState<{ rows: Row[]; n: number; start: number }>({ rows: [], n: 0, start: 0 });
  const box = useRef<HTMLDivElement>(null);
  const now = useRef<Projector | null>(null);
  useEffect(() => {
    const projector = (now.current = new Projector(tape, columns, pipe, (rows, n, start) => setView({ rows, n, start })));
    projector.show(run.cursor.get());
    const unwatch = run.cursor.watch((at) => projector.show(at));
    return () => {
      unwatch();
      projector.close();
    };
  }, [run, tape, columns, pipe]);
  useEffect(() => now.current?.show(run.cursor.get()), [known]); // more is known of what was shown
  useEffect(() => whenSized(box.current!, fit), []);
  useEffect(() => { // stay at the end, as a terminal does
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [view]);
  const last = tape.piece(view.n - 1);
  return (
    <>
      <div class="tty" ref={box} tabIndex={0} role="region" aria-label="What the terminal showed at the cursor">
        {view.rows.length === 0 && <div class="t-row muted">{view.n === 0 ? "Nothing was written yet at the cursor." : "The screen is empty."}</div>}
        <Rows rows={view.rows} />
      </div>
      <p class="muted small">
        {last ? <>Last piece <Seq run={run} seq={last.seq} /> at {run.at(last.at)}, {view.n.toLocaleString("en-GB")} of {tape.length.toLocaleString("en-GB")} pieces.</> : `${tape.length.toLocaleString("en-GB")} pieces in all.`}
        {view.start > 0 && " Shown from some hundred kilobytes before: remains of an earlier screen may be missing."}
      </p>
    </>
  );
}

/** Rows by what they show, so that those which only moved up stay as they are in the page. */
function Rows({ rows }: { rows: Row[] }) {
  const seen = new Map<string, number>();
  return <>{rows.map((row) => {
    const shows = row.map((s) => `${s.look}|${s.text}`).join("|");
    const n = (seen.get(shows) ?? 0) + 1;
    seen.set(shows, n);
    return <div class="t-row" key={`${n} ${shows}`}>{row.length === 0 ? " " : row.map((s) => (s.look ? <span class={s.look}>{s.text}</span> : s.text))}</div>;
  })}</>;
}

/** Reports how many characters fit into a line of an element, now and when its size has changed and rested. */
function whenSized(box: HTMLElement, fit: (columns: number) => void): () => void {
  const measure = () => {
    const probe = document.createElement("span");
    probe.className = "t-row";
    probe.textContent = "0".repeat(100);
    box.append(probe);
    const one = probe.getBoundingClientRect().width / 100;
    probe.remove();
    const { paddingLeft, paddingRight } = getComputedStyle(box);
    if (one > 0) fit(Math.min(Math.max(Math.floor((box.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)) / one) - 1, 40), 300));
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const watcher = new ResizeObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(measure, 250);
  });
  measure();
  watcher.observe(box);
  return () => {
    clearTimeout(timer);
    watcher.disconnect();
  };
}

/** Feeds a Screen so that it shows an instant; while it is busy only the latest wish is kept. */
class Projector {
  #screen: Screen;
  #start = 0; // first piece that was fed
  #fed = 0; // pieces up to here
  #wish: number | undefined;
  #busy = false;
  #closed = false;

  constructor(readonly tape: Tape, readonly columns: number, readonly pipe: boolean, readonly shown: (rows: Row[], n: number, start: number) => void) {
    this.#screen = new Screen(columns, pipe);
  }

  show(at: number): void {
    this.#wish = at;
    if (!this.#busy) void this.#work();
  }

  async #work(): Promise<void> {
    this.#busy = true;
    while (this.#wish !== undefined && !this.#closed) {
      const n = this.tape.shownAt(this.#wish);
      this.#wish = undefined;
      if (n === this.#fed && n > 0) continue;
      await this.#feed(n);
      if (!this.#closed) this.shown(this.#screen.rows(), n, this.#start);
      await new Promise((done) => requestAnimationFrame(done));
    }
    this.#busy = false;
  }

  async #feed(n: number): Promise<void> {
    const start = this.tape.startFor(n);
    if (n < this.#fed || start > this.#fed) { // back in time, or so far on that the way there need not be fed
      this.#screen.dispose();
      this.#screen = new Screen(this.columns, this.pipe);
      this.#start = this.#fed = start;
    }
    await this.#screen.feed(this.tape.text(this.#fed, n));
    this.#fed = n;
  }

  close(): void {
    this.#closed = true;
    this.#screen.dispose();
  }
}

const speeds = [0.5, 1, 2, 5, 10, 50] as const;
const longestPause = 1000; // milliseconds of a pause that are played where pauses are cut

/** Moves the cursor through the run as time went by. */
function Player({ run, tape }: { run: RunStore; tape: Tape }) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const [skip, setSkip] = useState(true);
  useEffect(() => {
    if (!playing) return;
    let before = performance.now();
    let frame = requestAnimationFrame(function tick(now) {
      const at = run.cursor.get();
      let next = at + (now - before) * speed;
      before = now;
      const coming = tape.piece(tape.shownAt(at))?.at ?? run.end.get();
      if (skip && coming - at > longestPause) next = Math.max(next, coming - longestPause);
      run.moveTo(next);
      if (next >= run.end.get()) setPlaying(false);
      else frame = requestAnimationFrame(tick);
    });
    return () => cancelAnimationFrame(frame);
  }, [playing, speed, skip, tape, run]);
  const toggle = () => {
    if (!playing && run.cursor.get() >= run.end.get()) run.moveTo(0);
    setPlaying(!playing);
  };
  const jump = (by: number) => {
    const n = tape.shownAt(run.cursor.get());
    const piece = by > 0 ? tape.piece(n) : tape.piece(n - 2);
    run.moveTo(piece ? piece.at : by > 0 ? run.end.get() : 0);
  };
  return (
    <div class="controls player">
      <button type="button" class="primary" onClick={toggle} aria-pressed={playing}>{playing ? "❚❚ Pause" : "▶ Play"}</button>
      <button type="button" onClick={() => jump(-1)} aria-label="To the piece before">‹ piece</button>
      <button type="button" onClick={() => jump(1)} aria-label="To the next piece">piece ›</button>
      <label>Speed <select value={speed} onChange={(e) => setSpeed(Number(e.currentTarget.value))}>{speeds.map((s) => <option value={s}>{s}×</option>)}</select></label>
      <label class="check"><input type="checkbox" checked={skip} onChange={(e) => setSkip(e.currentTarget.checked)} /> cut pauses to {span(longestPause)}</label>
      <Where run={run} />
    </div>
  );
}

function Where({ run }: { run: RunStore }) {
  const at = useCell(run.cursor);
  return <output class="num muted where" aria-live="off">{run.at(at)}</output>;
}
