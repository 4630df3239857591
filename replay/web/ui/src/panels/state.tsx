import { useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Hash, Time, Words, type Tone } from "../components/basic";
import { Loaded } from "../components/boxes";
import { stageWords } from "../kinds";
import * as prefs from "../prefs";
import type { RunStore } from "../runstore";
import { bytes, command, decode, flat, plural } from "../text";
import { full, since, span } from "../time";
import type { Egress, FileState, Held, Process, State, StepState } from "../types";
import { timelineAt } from "./commands";
import { Argv, Command, SearchFor, Section } from "./shared";

/** What the run was at the cursor, to the end of that millisecond: the same as custody timeline RUN --at TIME. */
export default function StatePanel({ run }: { run: RunStore }) {
  const at = useCell(run.settled);
  const version = useCell(run.version);
  const got = useGet<State>(run.path("state"), { at: run.at(at), lines: 12 }, version);
  return (
    <div class="panel state">
      <Loaded got={got} what="Working out the state">{(s) => <Shown run={run} s={s} />}</Loaded>
      <Command line={timelineAt(run.name, run.at(at))} />
    </div>
  );
}

const phases: Record<State["phase"], [Tone, string]> = {
  "not started": ["plain", "not started yet"], running: ["busy", "running"], frozen: ["warn", "frozen: the VM is paused"], ended: ["plain", "ended"],
};

function Shown({ run, s }: { run: RunStore; s: State }) {
  const zone = useCell(prefs.zone);
  const [tone, words] = phases[s.phase] ?? ["plain", s.phase];
  return (
    <>
      <p class="at" aria-live="polite">
        <strong class="num">{full(s.at, zone).slice(0, 23).replace("T", " ")}{zone === "utc" ? " UTC" : ""}</strong>
        <span class="muted num"> {run.at(Math.floor(since(s.at, run.began)))} into the run</span> <Badge tone={tone}>{words}</Badge>
        <span class="muted"> {plural(s.events, "record")} so far</span>
      </p>
      <Alarms s={s} />
      <Section title="Steps" n={s.steps?.length ?? 0}><Steps at={s.at} steps={s.steps ?? []} /></Section>
      <Section title="Processes" n={s.processes?.length ?? 0} note="as the guest claims"><Tree at={s.at} roots={s.processes ?? []} /></Section>
      <Net at={s.at} e={s.egress} />
      <Section title="Live secrets" n={s.secrets?.length ?? 0} note="seen by the host"><Secrets at={s.at} held={s.secrets ?? []} /></Section>
      <Section title="Files written so far" n={s.files?.length ?? 0} note="as the guest claims"><Files files={s.files ?? []} /></Section>
      {s.deleted?.length ? <Section title="Deleted so far" n={s.deleted.length}><ul class="plain-list">{s.deleted.slice(0, 200).map((p) => <li><Words text={p} /></li>)}</ul></Section> : null}
      <Section title="Last output" n={s.output?.length ?? 0}>
        <pre class="lines" tabIndex={0} aria-label="Last lines of output">{(s.output ?? []).map((o) => (
          <div><span class="stream">{flat(o.stream)}</span><Words text={o.text} limit={500} /></div>
        ))}</pre>
      </Section>
    </>
  );
}

/** What makes the state doubtful, and what was found up to here. */
function Alarms({ s }: { s: State }) {
  const lines: [Tone, string][] = [];
  if (s.missing) lines.push(["bad", `${plural(s.missing, "record is", "records are")} missing: this state may be wrong.`]);
  if (s.unreadable) lines.push(["bad", `${plural(s.unreadable, "record is", "records are")} unreadable: this state may be wrong.`]);
  return (
    <>
      {lines.map(([tone, text]) => <p class={`flag ${tone}`}><Badge tone={tone}>doubt</Badge> {text}</p>)}
      {(s.gaps ?? []).map((g) => (
        <p class="flag warn"><Badge tone="warn" title={stageWords.get(g.stage)}>gap</Badge> Lost at {flat(g.stage)}{g.what ? ` (${flat(g.what)})` : ""}: {plural(g.count, "event")}{g.bytes ? `, ${bytes(g.bytes)}` : ""}. <Words text={g.cause} mono={false} /></p>
      ))}
      {(s.findings ?? []).map((f) => <p class="flag bad"><Badge tone="bad">{flat(f.rule)}</Badge> <Words text={f.detail} mono={false} /></p>)}
    </>
  );
}

function Steps({ at, steps }: { at: string; steps: StepState[] }) {
  return (
    <table class="plain-table">
      <thead><tr><th scope="col">Step</th><th scope="col">Came to</th><th scope="col" class="right">Lasted</th><th scope="col">Command</th></tr></thead>
      <tbody>{steps.map((s) => (
        <tr>
          <th scope="row"><Words text={s.name} limit={60} mono={false} /></th>
          <td>{s.end ? <Exit s={s} /> : <Badge tone="busy">running</Badge>}</td>
          <td class="right num">{span(since(s.end ?? at, s.start))}</td>
          <td><Argv argv={s.argv} limit={120} /></td>
        </tr>
      ))}</tbody>
    </table>
  );
}

function Exit({ s }: { s: StepState }) {
  if (s.exit_code === undefined || s.exit_code === null) return <Badge tone="warn">{flat(s.status ?? "ended")}</Badge>;
  return <Badge tone={s.exit_code === 0 ? "ok" : "bad"}>exit {s.exit_code}</Badge>;
}

const deepest = 24; // levels that are indented; a tree can be deeper, and is then drawn at that depth
const someRows = 200;
const mostRows = 3000;

interface Row {
  p: Process;
  depth: number;
  above: number; // pid
}

/** Running processes, each below its parent; what one started can be folded. A tree may be as deep as a guest likes. */
function Tree({ at, roots }: { at: string; roots: Process[] }) {
  const [folded, setFolded] = useState<ReadonlySet<Process["proc"]>>(new Set());
  const [all, setAll] = useState(false);
  const rows = flatten(roots, folded);
  const shown = rows.slice(0, all ? mostRows : someRows);
  const fold = (proc: string) => {
    const next = new Set(folded);
    if (!next.delete(proc)) next.add(proc);
    setFolded(next);
  };
  return (
    <>
      <ul class="tree">{shown.map((row) => <Node key={row.p.proc} at={at} row={row} folded={folded.has(row.p.proc)} fold={fold} />)}</ul>
      {rows.length > shown.length && (
        <p class="muted">and {plural(rows.length - shown.length, "process", "processes")} more {!all && <button type="button" class="link" onClick={() => setAll(true)}>show {rows.length > mostRows ? `the first ${mostRows.toLocaleString("en-GB")}` : "all"}</button>}</p>
      )}
    </>
  );
}

function flatten(roots: Process[], folded: ReadonlySet<string>): Row[] {
  const rows: Row[] = [];
  const stack: Row[] = roots.map((p) => ({ p, depth: 0, above: 0 })).reverse();
  for (let row = stack.pop(); row; row = stack.pop()) {
    rows.push(row);
    if (folded.has(row.p.proc)) continue;
    for (const child of [...(row.p.children ?? [])].reverse()) stack.push({ p: child, depth: row.depth + 1, above: row.p.pid });
  }
  return rows;
}

function Node({ at, row: { p, depth, above }, folded, fold }: { at: string; row: Row; folded: boolean; fold: (proc: string) => void }) {
  const line = command(p.argv) || flat(p.exe);
  const shift = { paddingLeft: `${1.25 * Math.min(depth, deepest)}rem` };
  return (
    <li style={shift}>
      <div class="node">
        {p.children?.length ? (
          <button type="button" class="fold" aria-expanded={!folded} onClick={() => fold(p.proc)}
            aria-label={`${folded ? "Show" : "Hide"} what process ${p.pid} started`}>{folded ? "▸" : "▾"}</button>
        ) : <span class="fold" aria-hidden="true">·</span>}
        <span class="pid num">{p.pid}</span>{above > 0 && <span class="sr">started by {above}</span>}
        <Words text={line} limit={160} class="argv" />
        <span class="muted about">
          in <Words text={p.cwd || "?"} limit={60} /> · uid {p.uid} · step <Words text={p.step || "none"} limit={40} mono={false} /> · for {span(since(at, p.start))}
        </span>
      </div>
    </li>
  );
}

function Net({ at, e }: { at: string; e: Egress }) {
  const d = e.denied;
  const flows = e.flows ?? [];
  const names = e.names ?? [];
  return (
    <>
      <Section title="Open connections" n={flows.length} note="seen by the host">
        <table class="plain-table">
          <thead><tr><th scope="col">To</th><th scope="col">Rule</th><th scope="col">By, as the guest claims</th><th scope="col" class="right">Open for</th></tr></thead>
          <tbody>{flows.map((f) => (
            <tr>
              <th scope="row"><Words text={f.name || f.dst_ip} limit={60} /><span class="muted num">:{f.dst_port} {f.proto}</span></th>
              <td><Words text={f.rule} limit={60} /></td>
              <td>{f.by ? <Words text={f.by} /> : <span class="muted">not named</span>}</td>
              <td class="right num">{span(since(at, f.opened))}</td>
            </tr>
          ))}</tbody>
        </table>
      </Section>
      <Section title="Names resolved" n={names.length} note="seen by the host">
        <table class="plain-table">
          <thead><tr><th scope="col">Name</th><th scope="col">The guest was given</th><th scope="col">The gateway found</th><th scope="col">Last at</th></tr></thead>
          <tbody>{names.map((n) => (
            <tr><th scope="row"><Words text={n.name} /> <SearchFor by="host" value={decode(n.name)} /></th>
              <td class="mono">{(n.addrs ?? []).map((a) => flat(a)).join(", ") || "–"}</td><td class="mono">{(n.found ?? []).map((a) => flat(a)).join(", ") || "–"}</td><td><Time at={n.time} /></td></tr>
          ))}</tbody>
        </table>
      </Section>
      {d.questions + d.flows + d.requests > 0 && (
        <p class="denied"><Badge tone="bad">denied so far</Badge> {plural(d.questions, "question")}, {plural(d.flows, "connection")}, {plural(d.requests, "request")}.</p>
      )}
      <details class="policy">
        <summary>Policy in force{e.generation ? `, generation ${e.generation}` : ": none recorded"}</summary>
        {e.digest && <p>Digest <Hash value={e.digest} length={20} /></p>}
        {e.rules?.length ? <ul class="plain-list">{e.rules.map((r) => <li><Words text={r} /></li>)}</ul> : <p class="muted">It allows nothing.</p>}
      </details>
    </>
  );
}

function Secrets({ at, held }: { at: string; held: Held[] }) {
  return (
    <table class="plain-table">
      <thead><tr><th scope="col">Credential</th><th scope="col">Step</th><th scope="col">Delivered as</th><th scope="col">Left</th><th scope="col" class="right">Renewed</th></tr></thead>
      <tbody>{held.map((h) => {
        const left = Math.max(0, since(h.expires, at));
        return (
          <tr>
            <th scope="row"><Words text={h.name || "the step's own token"} mono={Boolean(h.name)} /></th>
            <td><Words text={h.step} mono={false} limit={40} /></td>
            <td>{h.via ? flat(h.via) : <span class="muted">not yet delivered</span>}</td>
            <td class="life"><meter min={0} max={60} value={left / 1000} aria-label={`${Math.round(left / 1000)} of 60 seconds left`} /> <span class="num">{(left / 1000).toFixed(1)} s</span></td>
            <td class="right num">{h.renewals ?? 0}×</td>
          </tr>
        );
      })}</tbody>
    </table>
  );
}

const someFiles = 100;

function Files({ files }: { files: FileState[] }) {
  const [all, setAll] = useState(false);
  return (
    <>
      <table class="plain-table">
        <thead><tr><th scope="col">Path</th><th scope="col" class="right">Size</th><th scope="col">SHA-256</th><th scope="col">Closed at</th></tr></thead>
        <tbody>{files.slice(0, all ? 2000 : someFiles).map((f) => (
          <tr><th scope="row"><Words text={f.path} limit={160} /></th><td class="right num">{bytes(f.size)}</td>
            <td>{f.sha256 ? <Hash value={f.sha256} /> : <span class="muted">{f.unhashed ? flat(f.unhashed) : "none"}</span>}</td><td><Time at={f.time} /></td></tr>
        ))}</tbody>
      </table>
      {files.length > someFiles && !all && <button type="button" class="link" onClick={() => setAll(true)}>Show {files.length > 2000 ? "2,000" : "all"} of {files.length.toLocaleString("en-GB")}; the panel Files has every one</button>}
    </>
  );
}
