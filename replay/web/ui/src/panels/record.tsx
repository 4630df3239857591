import type { ComponentType } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Copy, Fact, Facts, Seen, Time, Words } from "../components/basic";
import { Bundle } from "../components/bundle";
import { Empty, ErrorBox, Loaded, Loading } from "../components/boxes";
import { NotesOn } from "../components/notes";
import { overall, type Overall } from "../proof/words";
import { toRecord } from "../router";
import type { RunStore } from "../runstore";
import { flat, plural } from "../text";
import { span } from "../time";
import type { Finding, Link, RecordAnswer, RunRecord, Why } from "../types";
import { timelineAt, timelineKind } from "./commands";
import { exactRecord } from "./exact";
import { findingWords, kindWords } from "../kinds";
import { fieldsOf } from "./fields";
import { can, Command, Needs, Section, Seq, VerdictBadge } from "./shared";
import { Marked } from "../screens/words";
import { Value } from "./value";

/** One record: its contents, why it happened, what it led to, and its proof. */
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
  const [open, setOpen] = useState(always && can("auditor"));
  const [proof, setProof] = useState<Overall | null>(null);
  const place = useRef<HTMLDivElement>(null);
  const verify = () => {
    always = true;
    setOpen(true);
    place.current?.scrollIntoView();
  };
  return (
    <>
      <header class="record-head">
        <h2>Record {a.seq}{a.record && <> <span class="kind">{a.record.kind}</span></>}</h2>
        <span class="spring" />
        {can("auditor") && <button type="button" class={proof ? `badge ${overall[proof][0]}` : undefined} onClick={verify}>{proof ? overall[proof][1] : "Verify its proof"}</button>}
        <button type="button" disabled={a.seq <= 1} onClick={() => run.open(a.seq - 1)} aria-label="The record before">‹</button>
        <button type="button" disabled={a.seq >= last} onClick={() => run.open(a.seq + 1)} aria-label="The next record">›</button>
        <Copy text={location.origin + location.pathname + toRecord(run.name, a.seq, "record")} label="Copy link to this record" words="copy link" />
      </header>
      {a.verification && <p class={`flag ${a.verification.state === "fails" || a.verification.state === "unsigned" ? "bad" : "warn"}`}><Marked mark={a.verification} />{flat(a.verification.text ?? "")}</p>}
      {a.record ? <Lead r={a.record} /> : <Gone a={a} />}
      <Findings run={run} findings={a.findings} />
      <Notes run={run} seq={a.seq} />
      <WhyView run={run} why={a.why} />
      {a.record && <Fields run={run} r={a.record} />}
      <div ref={place}><Proof run={run} a={a} open={verify} told={open ? setProof : null} /></div>
      {a.record && <Exact run={run} r={a.record} />}
    </>
  );
}

/** Its kind, and its observer. */
function Lead({ r }: { r: RunRecord }) {
  return (
    <p class="lead"><Seen by={r.observer} /> {kindWords.get(r.kind) ?? "a record of an unknown kind"}
      {r.observer === "guest" && <span class="muted">: a claim of the kernel inside the VM, which the workload may have taken over</span>}.</p>
  );
}

function Fields({ run, r }: { run: RunStore; r: RunRecord }) {
  return (
    <Section title="Contents">
      <Facts>
        <Fact name="Time, host clock"><Time at={r.time} date digits={3} /> <button type="button" class="link" onClick={() => run.moveTo(run.instant(r.time))}>move the cursor here</button></Fact>
        {r.step && <Fact name="Step"><Words text={r.step} mono={false} /></Fact>}
        {fieldsOf(r as unknown as Record<string, unknown>).map((f) => <Fact key={f.name} name={f.label}><Value run={run} field={f} /></Fact>)}
        {r.guest_time && <Fact name="Guest's own clock"><Time at={r.guest_time.time} date /> <span class="muted">({span(r.guest_time.offset_ns / 1e6)} off at its start)</span></Fact>}
      </Facts>
    </Section>
  );
}

/** A record that is not there any more, or cannot be read. */
function Gone({ a }: { a: RecordAnswer }) {
  if (a.erased) {
    return <p class="flag warn"><Badge tone="warn">erased</Badge> This record's contents were erased permanently. Its place and its leaf, <code class="wrap">{flat(a.erased)}</code>, remain; its proof names who erased it and why.</p>;
  }
  return <p class="flag bad"><Badge tone="bad">unreadable</Badge> The bytes in the store are no JSON: the store was changed or is damaged. Compare it with the host's log: <code>custody verify</code>.</p>;
}

/** Why it was allowed or denied, what it rests on and what followed. */
function WhyView({ run, why }: { run: RunStore; why: Why }) {
  const links = why.causes.length + why.effects.length;
  if (!why.text && !why.verdict && links === 0) return null;
  return (
    <Section title="Why">
      <p class="because">{why.verdict && <VerdictBadge verdict={why.verdict} />} {why.text ? <Words text={why.text} mono={false} limit={2000} /> : <>{why.rule && <>By the rule <Words text={why.rule} />. </>}{flat(why.reason)}</>}</p>
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
          {" "}<Seen by={l.observer} short />{l.claimed && <span class="muted"> (guest's claim)</span>}
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
        <p class="flag bad"><Badge tone="bad">{flat(f.rule)}</Badge> <Words text={f.detail} mono={false} limit={600} />
          {findingWords.has(f.rule) && <span class="muted"> {findingWords.get(f.rule)}</span>} {f.derived ? <span class="muted">Derived from other records; it has no record of its own.</span> : <Seq run={run} seq={f.seq} time={f.time} />}</p>
      ))}
    </Section>
  );
}

/** What people noted on the record. */
function Notes({ run, seq }: { run: RunStore; seq: number }) {
  useCell(run.notes.notes);
  const n = run.notes.of(seq).length;
  return (
    <details class="record-notes" open={n > 0}>
      <summary>{n ? plural(n, "note") : "Note something on this record"}</summary>
      <NotesOn run={run} seq={seq} />
    </details>
  );
}

type View = ComponentType<{ run: RunStore; seq: number; record: RunRecord | undefined; told: (overall: Overall) => void }>;

/** Whether proofs are fetched without being asked for: after the first time. Each one is an entry in the access log. */
let always = false;

function Proof({ run, a, open, told }: { run: RunStore; a: RecordAnswer; open: () => void; told: ((overall: Overall) => void) | null }) {
  const [View, setView] = useState<View | null>(null);
  const [error, setError] = useState<Problem | null>(null);
  useEffect(() => {
    if (told) import("../proof/view").then((m) => setView(() => m.default), () => setError(new Problem({ title: "A part of the page could not be loaded", hint: "Reload the page." })));
  }, [told !== null]);
  if (!can("auditor")) return <Section title="Proof"><Needs role="auditor" what="The proof of a record" /></Section>;
  return (
    <Section title="Proof">
      {error && <ErrorBox error={error} />}
      {!told && (
        <>
          <p class="muted">Your browser checks that this record matches the host's signature: record, segment, signed manifest, host's log, checkpoint.</p>
          <p><button type="button" onClick={open}>Verify in this browser</button></p>
        </>
      )}
      <p><Bundle run={run} from={a.seq} to={a.seq}>Bundle of this record</Bundle></p>
      {told && (View ? <View run={run} seq={a.seq} record={a.record} told={told} /> : !error && <Loading what="Opening" />)}
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
        <summary>Exact JSON that was hashed</summary>
        {text === undefined ? <Loading /> : <><Copy text={text} label="Copy the exact JSON" /><pre class="json" tabIndex={0} aria-label="Exact JSON"><Words text={text} limit={20_000} /></pre></>}
      </details>
      <Command line={timelineAt(run.name, r.time)} />
      <Command line={timelineKind(run.name, r.kind)} />
    </Section>
  );
}
