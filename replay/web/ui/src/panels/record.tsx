import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Copy, Fact, Facts, Seen, Time, Words } from "../components/basic";
import { Empty, Loaded, Loading } from "../components/boxes";
import { toRecord } from "../router";
import type { RunStore } from "../runstore";
import { flat } from "../text";
import { span } from "../time";
import type { Finding, Link, RecordAnswer, RunRecord, Why } from "../types";
import { timelineAt, timelineKind } from "./commands";
import { exactRecord } from "./exact";
import { fieldsOf, kindWords } from "./fields";
import { can, Command, findingWords, Needs, Section, Seq, VerdictBadge } from "./shared";
import { Value } from "./value";

/** One record: what it says, why, what it led to, and its proof. */
export default function RecordPanel({ run }: { run: RunStore }) {
  const seq = useCell(run.seq);
  const got = useGet<RecordAnswer>(seq ? run.path("records", seq) : null);
  if (!seq) {
    return <Empty title="No record is chosen">Choose one in the list or in the lanes, or go through them with the arrow keys. Its details, its reasons and its proof are shown here.</Empty>;
  }
  return <div class="panel record"><Loaded got={got} what="Opening the record">{(a) => <Shown key={a.seq} run={run} a={a} />}</Loaded></div>;
}

function Shown({ run, a }: { run: RunStore; a: RecordAnswer }) {
  const last = run.detail.get().last_seq;
  return (
    <>
      <header class="record-head">
        <h2>Record {a.seq}{a.record && <> <span class="kind">{a.record.kind}</span></>}</h2>
        <span class="spring" />
        <button type="button" disabled={a.seq <= 1} onClick={() => run.open(a.seq - 1)} aria-label="The record before">‹</button>
        <button type="button" disabled={a.seq >= last} onClick={() => run.open(a.seq + 1)} aria-label="The next record">›</button>
        <Copy text={location.origin + location.pathname + toRecord(run.name, a.seq, "record")} label="Copy a link to this record" />
      </header>
      {a.record ? <Fields run={run} r={a.record} /> : <Gone a={a} />}
      <WhyView run={run} why={a.why} />
      <Findings run={run} findings={a.findings} />
      <Proof run={run} seq={a.seq} record={a.record} />
      {a.record && <Exact run={run} r={a.record} />}
    </>
  );
}

function Fields({ run, r }: { run: RunStore; r: RunRecord }) {
  return (
    <>
      <p class="lead"><Seen by={r.observer} /> {kindWords[r.kind] ?? "a record of a kind that this page does not know"}
        {r.observer === "guest" && <span class="muted">: a claim of the kernel inside the VM, which the workload may have taken over</span>}.</p>
      <Facts>
        <Fact name="Time, host clock"><Time at={r.time} date digits={3} /> <button type="button" class="link" onClick={() => run.moveTo(run.instant(r.time))}>move the cursor here</button></Fact>
        {r.step && <Fact name="Step"><Words text={r.step} mono={false} /></Fact>}
        {fieldsOf(r as unknown as Record<string, unknown>).map((f) => <Fact key={f.name} name={f.label}><Value run={run} field={f} /></Fact>)}
        {r.guest_time && <Fact name="Guest's own clock"><Time at={r.guest_time.time} date /> <span class="muted">({span(r.guest_time.offset_ns / 1e6)} off at its start)</span></Fact>}
      </Facts>
    </>
  );
}

/** A record that is not there any more, or cannot be read. */
function Gone({ a }: { a: RecordAnswer }) {
  if (a.erased) {
    return <p class="alarm warn"><Badge tone="warn">erased</Badge> What this record said is gone for good. Its place and its leaf, <code class="wrap">{flat(a.erased)}</code>, are still there; its proof says who erased it and why.</p>;
  }
  return <p class="alarm bad"><Badge tone="bad">unreadable</Badge> The bytes in the store are no JSON: somebody changed the store, or it is damaged. Compare it with the host's log: <code>custody verify</code>.</p>;
}

/** Why it was allowed or denied, what it rests on and what came of it. */
function WhyView({ run, why }: { run: RunStore; why: Why }) {
  const links = why.causes.length + why.effects.length;
  if (!why.text && !why.verdict && links === 0) return null;
  return (
    <Section title="Why">
      {why.verdict && <p><VerdictBadge verdict={why.verdict} /> {why.rule && <>by the rule <Words text={why.rule} /></>}{why.reason && <>: {flat(why.reason)}</>}</p>}
      {why.text && <p><Words text={why.text} mono={false} limit={2000} /></p>}
      {why.policy && (
        <p class="muted">Policy of generation {why.policy.generation}, digest <code class="wrap">{flat(why.policy.digest)}</code> <Copy text={why.policy.digest} label="Copy the policy's digest" />,
          set by record <Seq run={run} seq={why.policy.seq} />.</p>
      )}
      <Links run={run} title="It rests on" links={why.causes} />
      <Links run={run} title="It led to" links={why.effects} />
    </Section>
  );
}

function Links({ run, title, links }: { run: RunStore; title: string; links: Link[] }) {
  const [all, setAll] = useState(false);
  if (links.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ol class="links">{links.slice(0, all ? 1000 : 30).map((l) => (
        <li key={`${l.seq} ${l.relation}`}>
          <Seq run={run} seq={l.seq} time={l.time} /> <span class="kind">{l.kind}</span> <span class="relation">{flat(l.relation)}</span> <Words text={l.label} limit={140} />
          {" "}<Seen by={l.observer} short />{l.claimed && <span class="muted"> the relation is the guest's claim</span>}
        </li>
      ))}</ol>
      {links.length > 30 && !all && <button type="button" class="link" onClick={() => setAll(true)}>Show all {links.length.toLocaleString("en-GB")}</button>}
    </>
  );
}

function Findings({ run, findings }: { run: RunStore; findings: Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <Section title="Findings about this record" n={findings.length}>
      {findings.map((f) => (
        <p class="alarm bad"><Badge tone="bad">{flat(f.rule)}</Badge> <Words text={f.detail} mono={false} limit={600} />
          {findingWords[f.rule] && <span class="muted"> {findingWords[f.rule]}</span>} {f.derived ? <span class="muted">The model found it; it stands in no record.</span> : <Seq run={run} seq={f.seq} time={f.time} />}</p>
      ))}
    </Section>
  );
}

type Load = ComponentType<{ run: RunStore; seq: number; record: RunRecord | undefined }>;

/** Whether proofs are fetched without being asked for. Each one is an entry in the access log. */
let always = false;

function Proof({ run, seq, record }: { run: RunStore; seq: number; record: RunRecord | undefined }) {
  const [open, setOpen] = useState(always);
  const [View, setView] = useState<Load | null>(null);
  useEffect(() => {
    if (open) import("../proof/view").then((m) => setView(() => m.default));
  }, [open]);
  if (!can("auditor")) return <Section title="Proof"><Needs role="auditor" what="The proof of a record" /></Section>;
  return (
    <Section title="Proof">
      {!open && (
        <>
          <p class="muted">That this record is what the host signed, checked here in your browser: record, segment, signed manifest, host's log, checkpoint.</p>
          <button type="button" class="primary" onClick={() => { always = true; setOpen(true); }}>Verify in this browser</button>
        </>
      )}
      {open && (View ? <View run={run} seq={seq} record={record} /> : <Loading what="Opening" />)}
    </Section>
  );
}

function Exact({ run, r }: { run: RunStore; r: RunRecord }) {
  const [text, setText] = useState<string | undefined>(undefined);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (open) exactRecord(run.path("records", r.seq)).then((t) => setText(t ?? JSON.stringify(r)), () => setText(JSON.stringify(r)));
  }, [open]);
  return (
    <Section title="Elsewhere">
      <details onToggle={(e) => setOpen(e.currentTarget.open)}>
        <summary>Exact JSON, as it was hashed</summary>
        {text === undefined ? <Loading /> : <><Copy text={text} label="Copy the exact JSON" /><pre class="json" tabIndex={0} aria-label="Exact JSON"><Words text={text} limit={20_000} /></pre></>}
      </details>
      <Command line={timelineAt(run.name, r.time)} />
      <Command line={timelineKind(run.name, r.kind)} />
    </Section>
  );
}
