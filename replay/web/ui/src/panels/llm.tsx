import { useMemo, useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Fact, Facts, Hash, Length, Time, Words } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { Table, type Column } from "../components/table";
import type { RunStore } from "../runstore";
import { count, decode, flat, plural } from "../text";
import type { Call, Items, ToolCall } from "../types";
import { By, Figure, Section, Seq } from "./shared";

/** The LLM API calls: tokens against the budget, and the commands that they asked for. */
export default function CallsPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<Call>>(run.path("calls"), {}, version);
  return <div class="panel full"><Loaded got={got} what="Gathering the calls">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

function Shown({ run, all }: { run: RunStore; all: Call[] }) {
  const [chosen, setChosen] = useState(0);
  const columns = useMemo(() => columnsOf(run), [run]);
  const current = all.find((c) => c.seq === chosen);
  if (all.length === 0) return <Empty title="No model was called">Calls are recorded where a rule of the policy has <code>http</code>, so that the gateway can read them.</Empty>;
  return (
    <>
      <Totals all={all} />
      <div class="fill">
        <Table label="LLM API calls" columns={columns} rows={all} keyOf={(c) => c.seq} selected={chosen || null} height={30} onSelect={(c) => { setChosen(c.seq); run.open(c.seq, c.start); }} />
      </div>
      {current && <Details run={run} c={current} />}
    </>
  );
}

function Totals({ all }: { all: Call[] }) {
  const add = (of: (c: Call) => number | undefined) => all.reduce((n, c) => n + (of(c) ?? 0), 0);
  const budget = Math.max(0, ...all.map((c) => c.llm.budget ?? 0));
  const spent = Math.max(0, ...all.map((c) => c.llm.spent ?? 0));
  const failed = all.filter((c) => failedCall(c)).length;
  return (
    <div class="figures">
      <Figure name="calls">{count(all.length)}</Figure>
      <Figure name="tokens in">{count(add((c) => c.llm.input_tokens))}</Figure>
      <Figure name="of those from a cache">{count(add((c) => c.llm.cache_read_tokens))}</Figure>
      <Figure name="tokens out">{count(add((c) => c.llm.output_tokens))}</Figure>
      <Figure name="commands from tool calls">{count(add((c) => c.execs.length))}</Figure>
      {failed > 0 && <Figure name="failed" tone="bad">{count(failed)}</Figure>}
      {budget > 0 && (
        <div class="figure budget">
          <span class="value num">{count(spent)} of {count(budget)}</span>
          <meter min={0} max={budget} value={spent} high={0.8 * budget} aria-label={`${count(spent)} of ${count(budget)} tokens of the budget are spent`} />
          <span class="name">tokens of the budget spent</span>
        </div>
      )}
    </div>
  );
}

const failedCall = (c: Call) => (c.llm.status !== undefined && (c.llm.status < 200 || c.llm.status > 299)) || Boolean(c.llm.incomplete) || Boolean(c.llm.error);

function columnsOf(run: RunStore): Column<Call>[] {
  return [
    { id: "id", title: "Call", width: "3.8rem", cell: (c) => <Seq run={run} seq={c.seq} time={c.start}>{flat(c.llm.id)}</Seq> },
    { id: "start", title: "Began", width: "7.6rem", cell: (c) => <Time at={c.start} />, sort: (a, b) => run.instant(a.start) - run.instant(b.start) },
    { id: "model", title: "Model", width: "minmax(0, 1fr)", cell: (c) => <Words text={c.llm.model ?? c.llm.provider} limit={60} />, sort: (a, b) => (decode(a.llm.model) < decode(b.llm.model) ? -1 : 1) },
    { id: "in", title: "In", width: "4rem", right: true, cell: (c) => <span class="num">{count(c.llm.input_tokens)}</span>, sort: (a, b) => a.llm.input_tokens - b.llm.input_tokens },
    { id: "out", title: "Out", width: "4rem", right: true, cell: (c) => <span class="num">{count(c.llm.output_tokens)}</span>, sort: (a, b) => a.llm.output_tokens - b.llm.output_tokens },
    { id: "tools", title: "Asked for", width: "minmax(0, 1.2fr)", cell: (c) => <Asked c={c} /> },
    { id: "status", title: "Status", width: "5rem", cell: (c) => <Badge tone={failedCall(c) ? "bad" : "ok"}>{c.llm.status ?? "–"}</Badge>, sort: (a, b) => (a.llm.status ?? 0) - (b.llm.status ?? 0) },
    { id: "took", title: "Took", width: "5rem", right: true, cell: (c) => <Length ns={c.llm.duration_ns} />, sort: (a, b) => a.llm.duration_ns - b.llm.duration_ns },
  ];
}

function Asked({ c }: { c: Call }) {
  const tools = c.llm.tool_calls ?? [];
  if (tools.length === 0) return <span class="muted">no tool</span>;
  return <span>{tools.slice(0, 3).map((t) => <><Words text={t.name} limit={30} /> </>)}{tools.length > 3 && `+${tools.length - 3}`} <span class="muted">→ {plural(c.execs.length, "command")}</span></span>;
}

function Details({ run, c }: { run: RunStore; c: Call }) {
  const l = c.llm;
  return (
    <div class="details" role="region" aria-label="The chosen call">
      <h2>Call {flat(l.id)} <Words text={l.model} limit={80} /></h2>
      <Facts>
        <Fact name="Record"><Seq run={run} seq={c.seq} time={c.start} />{c.flow_seq ? <> carried by <Seq run={run} seq={c.flow_seq} /></> : null}</Fact>
        <Fact name="Sent to"><Words text={l.host} /> <span class="muted">{flat(l.provider)} {flat(l.api)}</span></Fact>
        <Fact name="By"><By run={run} by={c.by} /> {c.step && <span class="muted">step {flat(c.step)}</span>}</Fact>
        <Fact name="Tokens"><span class="num">{count(l.input_tokens)} in{l.cache_read_tokens ? `, ${count(l.cache_read_tokens)} of them from a cache` : ""}; {count(l.output_tokens)} out{l.reasoning_tokens ? `, ${count(l.reasoning_tokens)} of them reasoning` : ""}</span> <span class="muted">as the provider counts</span></Fact>
        {l.stop_reason && <Fact name="Stopped because"><Words text={l.stop_reason} limit={100} /></Fact>}
        {l.error && <Fact name="Error"><Words text={l.error} limit={500} mono={false} /></Fact>}
        {l.incomplete && <Fact name="May be short"><span class="warn">{flat(l.incomplete)}</span></Fact>}
        {l.first_token_ns ? <Fact name="First content after"><Length ns={l.first_token_ns} /></Fact> : null}
      </Facts>
      <Section title="Tools that it called" n={(l.tool_calls ?? []).length}>
        <ol class="tools">{(l.tool_calls ?? []).map((t, i) => <li><Tool run={run} t={t} execs={c.tools[i]?.execs ?? []} /></li>)}</ol>
      </Section>
    </div>
  );
}

function Tool({ run, t, execs }: { run: RunStore; t: ToolCall; execs: number[] }) {
  return (
    <>
      <Words text={t.name} limit={80} /> <Hash value={t.sha256} /> {t.truncated && <Badge tone="warn">cut</Badge>}
      {execs.length > 0 ? <> → {execs.slice(0, 20).map((seq) => <><Seq run={run} seq={seq} label={`Record ${seq}, a command that this tool call requested`} /> </>)}{execs.length > 20 && `and ${execs.length - 20} more`}</>
        : <span class="muted"> no matching command was recorded</span>}
      {t.arguments !== undefined && <pre class="lines"><Words text={t.arguments} limit={1500} multiline /></pre>}
    </>
  );
}
