import { useEffect, useState } from "preact/hooks";
import { get, post, Problem, session } from "../api";
import { useCell } from "../cell";
import { Badge, Copy, Hash, Length, Time, Words } from "../components/basic";
import { Bundle } from "../components/bundle";
import { Descent } from "../components/descent";
import { RunNotes } from "../components/notes";
import { ErrorBox } from "../components/boxes";
import type { LiveState } from "../live";
import { amend, to } from "../router";
import type { RunStore } from "../runstore";
import { count, flat, plural } from "../text";
import type { Doubt, Verification } from "../types";
import { may } from "./bar";
import { Proof, Result, Status, Tier } from "./words";

/** What a run is, in two lines: what was done under which policy, and whether the record can be trusted. */
export function Header({ run, live }: { run: RunStore; live: LiveState }) {
  const d = useCell(run.detail);
  const facts = d.facts ?? {};
  const found = d.findings + (d.derived_findings ?? 0);
  return (
    <header class="run-head">
      <div class="line">
        <h1 class="mono">{flat(d.run)}</h1><Copy text={d.run} label="Copy the run's name" />
        <Status run={d} />{!d.live && <Result run={d} />}
        {d.live && <Updates state={live} />}
        <Tier tier={d.tier} note={facts.tier_note} />
        <Verify run={run} />
        {found > 0
          ? <button type="button" class="badge warn" onClick={() => run.show("findings")}>{plural(found, "finding")}</button>
          : <Badge tone="plain">no findings</Badge>}
        {d.gaps > 0
          ? <button type="button" class="badge warn" title="Show them in the list" onClick={() => amend({ kind: "gap" })}>{plural(d.gaps, "gap")}, {count(d.lost)} lost</button>
          : <Badge tone="plain">no gaps</Badge>}
        <span class="spring" />
        <RunNotes run={run} />
        <Bundle run={run}>Bundle</Bundle>
        <a class="button" href={to(["compare"], { a: d.run })}>Compare</a>
        <a class="button" href={to(["reports"], { run: d.run })}>Report</a>
      </div>
      <dl class="line small">
        <div><dt>Project</dt><dd><Words text={d.project || "–"} limit={60} mono={false} /></dd></div>
        {d.tenant && <div><dt>Tenant</dt><dd><Words text={d.tenant} limit={60} mono={false} /></dd></div>}
        <div><dt>Began</dt><dd><Time at={d.start} date /></dd></div>
        <div><dt>Lasted</dt><dd>{d.end ? <Length ns={d.duration_ns} /> : "goes on"}</dd></div>
        <div><dt>Records</dt><dd class="num">{count(d.events)}</dd></div>
        <div><dt>Mode</dt><dd>{d.mode || "–"}</dd></div>
        <div><dt>Template</dt><dd><Words text={d.template || "–"} limit={60} mono={false} /> {facts.template_digest && <Hash value={facts.template_digest} length={8} />}</dd></div>
        <div><dt>Policy</dt><dd><Hash value={d.policy?.at(-1)?.digest ?? facts.policy_digest} length={8} /> {(d.policy?.length ?? 0) > 1 && <span class="muted">{d.policy.length} generations</span>}</dd></div>
        {d.host && <div><dt>Host</dt><dd><Words text={d.host} limit={60} mono={false} /></dd></div>}
        {facts.parent && <div><dt>{facts.parent.op === "fork" ? "Fork of" : "Continues"}</dt><dd><a class="mono" href={to(["runs", facts.parent.run])}>{flat(facts.parent.run)}</a></dd></div>}
        <Descent run={run} />
        {facts.tier_note && <div class="note"><dt>Tier note</dt><dd title={flat(facts.tier_note)}>{flat(facts.tier_note)}</dd></div>}
      </dl>
    </header>
  );
}

function Updates({ state }: { state: LiveState }) {
  return state === "reconnecting"
    ? <Badge tone="warn" title="Trying again">live updates broke off</Badge>
    : <Badge tone="busy" title="New records appear as they are written">live</Badge>;
}

/** The proof in words, and a way to have it checked; a proof that fails is said in a sentence above all. */
function Verify({ run }: { run: RunStore }) {
  const d = useCell(run.detail);
  const who = useCell(session);
  const [error, setError] = useState<Problem | null>(null);
  const state = d.verification?.state;
  const auditor = who ? may(who.role, "auditor") : false;
  const put = (verification: Verification) => run.detail.set({ ...run.detail.get(), verification });
  const check = async () => {
    setError(null);
    try {
      put(await post<Verification>(run.path("verify")));
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
  };
  useEffect(() => {
    if (state !== "checking" || !auditor) return;
    const stop = new AbortController();
    const timer = setInterval(() => void get<Verification>(run.path("verify"), {}, stop.signal).then(put, () => undefined), 1000);
    return () => {
      clearInterval(timer);
      stop.abort();
    };
  }, [run, state, auditor]);
  return (
    <>
      <Chip run={run} />
      {auditor && !d.live && state !== "checking" && <button type="button" class="link" onClick={check}>{state === "holds" ? "check again" : "check now"}</button>}
      {error && <ErrorBox error={error} />}
    </>
  );
}

/** The proof as a chip that opens: what was found, and the bundle with which anyone can check it again. */
function Chip({ run }: { run: RunStore }) {
  const v = useCell(run.detail).verification;
  return (
    <details class="proof-chip" onKeyDown={(e) => { if (e.key === "Escape") e.currentTarget.open = false; }}>
      <summary><Proof verification={v} /></summary>
      <div class="pop small">
        <p>{flat(v?.text ?? "") || "The record has not been checked yet."} {v?.at && <>Checked <Time at={v.at} date digits={0} />.</>}</p>
        <p><Bundle run={run}>Download the bundle</Bundle></p>
        <p class="muted">With the bundle and the host's key, <code>custody verify</code> and verify.py check the whole run on another machine.</p>
      </div>
    </details>
  );
}

/** Stands above everything when the record cannot be relied upon. */
export function Alarm({ run }: { run: RunStore }) {
  const { verification: v, doubt } = useCell(run.detail);
  if (v?.state === "unsigned") {
    return (
      <div class="alarm" role="alert">
        <strong>No signature covers this run. Do not rely on anything on this page.</strong>{" "}
        The store has rows of it, but no manifest that a host signed. Anyone who can write to the store can invent such rows.
        Look for the run's signed record on the host that is said to have run it; if there is none, treat the run as invented. {v.at && <>Checked <Time at={v.at} date digits={0} />.</>}
      </div>
    );
  }
  if (v?.state !== "fails") return doubt ? <Doubted run={run} doubt={doubt} /> : null;
  return (
    <div class="alarm" role="alert">
      <strong>Verification fails: this record is not what was sealed. Do not rely on anything on this page.</strong>{" "}
      {v.name && <code>{flat(v.name)}</code>} {flat(v.text)} {v.at && <>Checked <Time at={v.at} date digits={0} />.</>}
    </div>
  );
}

/** Stands above everything when records of the run are not what was signed, whether the run was verified or not: every panel is made of them. */
function Doubted({ run, doubt }: { run: RunStore; doubt: Doubt }) {
  const wrong = doubt.records.some((r) => r.verification.state === "fails" || r.verification.state === "unsigned");
  return (
    <div class={wrong ? "alarm" : "alarm mild"} role="alert">
      <strong>{plural(doubt.count, "record")} of this run {doubt.count === 1 ? "is" : "are"} {wrong ? "not what was signed" : "not known to be what was signed"}. Lists, states and findings on this page are derived from {doubt.count === 1 ? "it" : "them"}, too.</strong>{" "}
      {doubt.records.slice(0, 5).map((r) => <><button type="button" class="link" onClick={() => run.open(r.seq)}>record {r.seq}</button>: {flat(r.verification.text ?? r.verification.state)}. </>)}
      {doubt.count > 5 && <>The list of records marks the others.</>}
    </div>
  );
}
