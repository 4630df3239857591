import { useEffect, useMemo } from "preact/hooks";
import { href, useGet } from "../api";
import { type Cell, settle, useCell } from "../cell";
import { Badge, Hash, Time, Words } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { stageWords } from "../kinds";
import { to as address } from "../router";
import { BundleOf } from "../lanes/under";
import type { Range, RunStore } from "../runstore";
import { bytes, count, flat, plural } from "../text";
import { span } from "../time";
import type { Changes, Connection, Proc } from "../types";
import { Argv, can, Needs, Section, Seq, VerdictBadge } from "./shared";

/** What happened in the stretch of time that is marked in the lanes. */
export default function ChangesPanel({ run }: { run: RunStore }) {
  const marked = useCell(run.selection);
  const version = useCell(run.version);
  const view = useRested(run.view, 200);
  const range = marked ?? view;
  const got = useGet<Changes>(run.path("changes"), { from: run.at(range.from), to: run.at(range.to) }, version);
  return (
    <div class="panel changes">
      <p>{marked ? "In the marked range" : "In the visible part of the lanes (mark a range there to narrow it)"}: <span class="num">{run.at(range.from)} to {run.at(range.to)}</span>, <span class="num">{span(range.to - range.from)}</span>.</p>
      <Take run={run} range={range} />
      <Loaded got={got} what="Working out the changes">{(c) => <Shown run={run} c={c} />}</Loaded>
    </div>
  );
}

/** A cell's value once it has not changed for so many milliseconds. */
function useRested<T>(cell: Cell<T>, ms: number): T {
  const rested = useMemo(() => settle(cell, ms), [cell, ms]);
  useEffect(() => rested.stop, [rested]);
  return useCell(rested.cell);
}

/** Takes the stretch along: as a bundle, or as an export. */
function Take({ run, range }: { run: RunStore; range: Range }) {
  if (!can("auditor")) return <Needs role="auditor" what="A bundle or an export of this range" />;
  const between = { from: run.at(range.from), to: run.at(range.to) };
  return (
    <p class="actions">
      <BundleOf run={run} range={range} />
      <a class="button" href={href(run.path("export"), { ...between, format: "csv" })} download>CSV of it</a>
      <a class="button" href={href(run.path("export"), { ...between, format: "ndjson" })} download>NDJSON of it</a>
      <a class="button" href={address(["exports"], { run: run.name, ...between })}>More exports</a>
    </p>
  );
}

function Shown({ run, c }: { run: RunStore; c: Changes }) {
  if (c.events === 0) return <Empty title="Nothing was recorded in this range">Mark a longer range.</Empty>;
  return (
    <>
      <p><strong class="num">{plural(c.events, "record")}</strong>, {bytes(c.output_bytes)} of output.</p>
      {c.gaps.map((g) => <p class="flag warn"><Badge tone="warn" title={stageWords.get(g.stage)}>gap</Badge> {flat(g.stage)}: {plural(g.count, "event")} lost. {flat(g.cause)}</p>)}
      {c.findings.length > 0 && <Section title="Findings" n={c.findings.length}><ul class="plain-list">{c.findings.map((f) => <li><Badge tone="bad">{flat(f.rule)}</Badge> <Words text={f.detail} limit={300} mono={false} /> {f.seq ? <Seq run={run} seq={f.seq} time={f.time} /> : null}</li>)}</ul></Section>}
      <Section title="Processes started" n={c.started.length}><Procs run={run} list={c.started} /></Section>
      <Section title="Processes ended" n={c.ended.length}><Procs run={run} list={c.ended} ended /></Section>
      <Section title="Denied" n={c.denied.length}><Connections run={run} list={c.denied} /></Section>
      <Section title="Connections opened" n={c.opened.length}><Connections run={run} list={c.opened} /></Section>
      <Section title="Connections closed" n={c.closed.length}><Connections run={run} list={c.closed} /></Section>
      <Section title="Files" n={c.files.length}>
        <ul class="plain-list">{c.files.slice(0, most).map((f) => <li><Seq run={run} seq={f.seq} time={f.last} /> {f.changes.map((x) => flat(x.op)).filter((x, i, all) => all.indexOf(x) === i).join(", ")} <Words text={f.path} limit={200} /> {f.sha256 && <Hash value={f.sha256} length={10} />}</li>)}<More n={c.files.length} /></ul>
      </Section>
      <Section title="LLM API calls" n={c.calls.length}>
        <ul class="plain-list">{c.calls.slice(0, most).map((l) => <li><Seq run={run} seq={l.seq} time={l.start} /> {flat(l.llm.id)} <Words text={l.llm.model} limit={60} /> <span class="num muted">{count(l.llm.input_tokens)} in, {count(l.llm.output_tokens)} out</span></li>)}<More n={c.calls.length} /></ul>
      </Section>
      <Section title="Credentials minted" n={c.minted.length}>
        <ul class="plain-list">{c.minted.map((s) => <li><Seq run={run} seq={s.seq} time={s.start} /> <Words text={s.name || "the step's own token"} /> for {flat(s.step)}</li>)}</ul>
      </Section>
      <Section title="Credentials over" n={c.over.length}>
        <ul class="plain-list">{c.over.map((s) => <li><Seq run={run} seq={s.end_seq ?? s.seq} time={s.end ?? undefined} /> <Words text={s.name || "the step's own token"} /> {flat(s.ended_by ?? "")} <Time at={s.end} /></li>)}</ul>
      </Section>
    </>
  );
}

const most = 200;

function More({ n }: { n: number }) {
  return n > most ? <li class="muted">and {count(n - most)} more</li> : null;
}

function Procs({ run, list, ended = false }: { run: RunStore; list: Proc[]; ended?: boolean }) {
  return (
    <ul class="plain-list">{list.slice(0, most).map((p) => (
      <li><Seq run={run} seq={(ended && p.exit_seq) || p.seq} time={(ended && p.end) || p.start} /> <span class="pid num">{p.pid}</span> <Argv argv={p.argv} limit={160} />
        {ended && (p.code !== null ? <> <Badge tone={p.code === 0 ? "ok" : "bad"}>exit {p.code}</Badge></> : <span class="muted"> code unknown</span>)}</li>
    ))}<More n={list.length} /></ul>
  );
}

function Connections({ run, list }: { run: RunStore; list: Connection[] }) {
  return (
    <ul class="plain-list">{list.slice(0, most).map((c) => (
      <li><Seq run={run} seq={c.seq} time={c.start} /> <VerdictBadge verdict={c.verdict} state={c.state} /> <Words text={c.name} limit={100} /><span class="muted num">{c.dst_port ? `:${c.dst_port}` : ""} {flat(c.proto)}</span> {c.reason && <span class="muted">{flat(c.reason)}</span>}</li>
    ))}<More n={list.length} /></ul>
  );
}
