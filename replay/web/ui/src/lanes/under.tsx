import { useState } from "preact/hooks";
import { session, useGet } from "../api";
import { useCell } from "../cell";
import { Seen, Words } from "../components/basic";
import { Bundle } from "../components/bundle";
import * as prefs from "../prefs";
import type { Range, RunStore } from "../runstore";
import { flat } from "../text";
import { clock, offsetText, span } from "../time";
import { may } from "../screens/bar";
import type { RecordPage } from "../types";
import { holeText, known, lengthOf, moods, summary, under } from "./geometry";
import { Jump, LinkHere } from "./jump";
import type { Source } from "./source";

/** The line below the picture: where the cursor stands, what is there, and what is marked. */
export function Under({ run, source, width }: { run: RunStore; source: Source; width: number }) {
  const at = useCell(run.settled);
  const zone = useCell(prefs.zone);
  const view = useCell(run.rested);
  const [open, setOpen] = useState(false);
  const data = source.data ?? source.whole;
  const slack = ((view.to - view.from) / width) * 4;
  return (
    <>
      <div class="under">
        <Jump run={run} />
        <span class="num strong">{clock(run.wall(at), zone)} {zone === "utc" ? "UTC" : "local"}</span>
        <span class="num muted">{offsetText(at)}</span>
        <LinkHere run={run} />
        <span class="under-words" aria-live="polite">{data ? summary(data, at, slack) : "Reading the lanes…"}</span>
        <button type="button" aria-expanded={open} aria-controls="under-list" onClick={() => setOpen(!open)}>
          {open ? "Hide what is under the cursor" : "List what is under the cursor"}
        </button>
        {(at < view.from || at > view.to) && <button type="button" onClick={() => run.look({ from: at - (view.to - view.from) / 2, to: at + (view.to - view.from) / 2 })}>Show the cursor</button>}
        <Keys />
        <span class="spring" />
        <Marked run={run} />
      </div>
      {open && (
        <div class="under-list" id="under-list" role="region" aria-label="Under the cursor" tabIndex={0}>
          {data && <UnderTable run={run} source={source} slack={slack} at={at} />}
        </div>
      )}
    </>
  );
}

const most = 100;

function UnderTable({ run, source, slack, at }: { run: RunStore; source: Source; slack: number; at: number }) {
  const zone = useCell(prefs.zone);
  const data = (source.data ?? source.whole)!;
  const rows = under(data, at, slack).flatMap(({ lane, items }) => items.map((item) => ({ lane, item })));
  const holes = [
    ...data.gaps.map((hole) => ({ hole, what: "Gap" as const })),
    ...data.freezes.map((hole) => ({ hole, what: "Freeze" as const })),
  ].filter(({ hole }) => at >= hole.from - slack && at <= hole.to + slack);
  if (!rows.length && !holes.length) return <p class="muted">Nothing is under the cursor. Arrow down and up go to the next and the previous item.</p>;
  return (
    <table class="plain">
      <thead><tr><th scope="col">Lane</th><th scope="col">What</th><th scope="col">Began</th><th scope="col">Lasted</th><th scope="col">Verdict</th><th scope="col">Seen by</th></tr></thead>
      <tbody>
        {holes.map(({ hole, what }) => (
          <tr>
            <td>{what}</td>
            <td>{hole.seq ? <button type="button" class="link" onClick={() => run.visit(hole.seq, hole.from)}>{flat(holeText(hole, what))}</button> : flat(holeText(hole, what))}</td>
            <td class="num">{clock(run.wall(hole.from), zone)}</td>
            <td class="num">{span(hole.to - hole.from)}</td>
            <td>–</td>
            <td>{hole.seq ? <Seen by="host" /> : "not declared"}</td>
          </tr>
        ))}
        {rows.slice(0, most).map(({ lane, item }) => (
          <tr>
            <td>{known[lane]?.title ?? lane}</td>
            <td><button type="button" class="link" onClick={() => run.visit(item.seq, item.at)}><Words text={item.label} limit={120} /></button></td>
            <td class="num">{clock(run.wall(item.at), zone)}</td>
            <td class="num">{lengthOf(item, data.end) || "an instant"}</td>
            <td>{moods[item.mood] || "–"}</td>
            <td><Seen by={item.observer} /></td>
          </tr>
        ))}
        {rows.length > most && <tr><td colSpan={6} class="muted">and {rows.length - most} more: zoom in, or use the list of records</td></tr>}
      </tbody>
    </table>
  );
}

/** What can be done with the stretch that is marked. */
function Marked({ run }: { run: RunStore }) {
  const marked = useCell(run.selection);
  const who = useCell(session);
  const zone = useCell(prefs.zone);
  const at = useCell(run.settled);
  const from = <button type="button" title="Mark from the cursor on ([)" onClick={() => run.mark(at, run.selection.get()?.to ?? run.end.get())}>Mark from here</button>;
  const to = <button type="button" title="Mark up to the cursor (])" onClick={() => run.mark(run.selection.get()?.from ?? 0, at)}>to here</button>;
  if (!marked) return <span class="marked">{from}{to}<span class="muted">or Shift-drag</span></span>;
  const auditor = who ? may(who.role, "auditor") : false;
  return (
    <span class="marked">
      {from}{to}
      <span class="num">{clock(run.wall(marked.from), zone)} – {clock(run.wall(marked.to), zone)}</span>
      <span class="muted">{span(marked.to - marked.from)}</span>
      <button type="button" onClick={() => run.look(marked)}>Zoom to it</button>
      <button type="button" onClick={() => run.show("changes")}>What changed</button>
      {auditor ? <BundleOf run={run} range={marked} /> : <span class="muted">A bundle needs the role auditor</span>}
      <button type="button" class="link" onClick={() => run.selection.set(null)}>Clear</button>
    </span>
  );
}

/** A bundle is of seqs: the first and the last of the stretch are asked for first. */
export function BundleOf({ run, range }: { run: RunStore; range: Range }) {
  const query = { from: run.at(range.from), to: run.at(range.to), limit: 1 };
  const first = useGet<RecordPage>(run.path("records"), query);
  const last = useGet<RecordPage>(run.path("records"), { ...query, order: "desc" });
  const error = first.error ?? last.error;
  if (error) return <span class="bad">{error.message}</span>;
  if (first.loading || last.loading || !first.data || !last.data) return <span class="muted">Looking for its records…</span>;
  const from = first.data.records[0]?.seq;
  const to = last.data.records[0]?.seq;
  if (!from || !to) return <span class="muted">No record is in it</span>;
  return <Bundle run={run} from={from} to={to}>Bundle of this selection (seq {from} to {to})</Bundle>;
}

function Keys() {
  const [open, setOpen] = useState(false);
  return (
    <span class="keys" onKeyDown={(e) => e.key === "Escape" && setOpen(false)}>
      <button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>Keys and signs</button>
      {open && (
        <div class="pop">
          <dl>
            <div><dt>← →</dt><dd>move the cursor, with Shift further</dd></div>
            <div><dt>↑ ↓</dt><dd>previous, next thing</dd></div>
            <div><dt>+ − 0</dt><dd>zoom in, out, whole run</dd></div>
            <div><dt>Page ↑ ↓</dt><dd>earlier, later</dd></div>
            <div><dt>Home End</dt><dd>start, end of the run</dd></div>
            <div><dt>[ ]</dt><dd>mark from, to the cursor; Esc clears</dd></div>
            <div><dt>Wheel</dt><dd>zoom, with Shift sideways</dd></div>
            <div><dt>Drag</dt><dd>move; on the axis: the cursor; with Shift: mark</dd></div>
          </dl>
          <dl>
            <div><dt>Filled bar</dt><dd>the host saw it</dd></div>
            <div><dt>Outlined bar</dt><dd>the guest claims it</dd></div>
            <div><dt>Dashed bar</dt><dd>what was left of a credential's promise when it ended</dd></div>
            <div><dt class="mood ok">allowed</dt><dd>or ended well</dd></div>
            <div><dt class="mood deny">denied</dt><dd>by the policy</dd></div>
            <div><dt class="mood revoke">revoked</dt><dd>ended by Custody before its time</dd></div>
            <div><dt class="mood fail">failed</dt><dd>ended with an error or a signal</dd></div>
            <div><dt class="mood finding">finding</dt><dd>something to look at</dd></div>
            <div><dt>Hatched</dt><dd>a gap: records were lost there. Cross-hatched: the machine was frozen</dd></div>
          </dl>
        </div>
      )}
    </span>
  );
}
