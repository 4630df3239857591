import { useEffect, useState } from "preact/hooks";
import { getBytes, Problem } from "../api";
import { useCell } from "../cell";
import { Badge, Copy, type Tone } from "../components/basic";
import { ErrorBox, Loading } from "../components/boxes";
import type { RunStore } from "../runstore";
import { flat } from "../text";
import type { RunRecord } from "../types";
import type { Bytes } from "./bytes";
import { Keys } from "./keys";
import { cannotVerify } from "./note";
import { type Outcome, type Report, type Step, verifyRecord } from "./record";
import { trust } from "./trust";
import { overall, type Overall } from "./words";

type Work = { state: "busy" } | { state: "error"; error: Problem } | { state: "done"; report: Report; document: Bytes; cannot?: string };

/** Fetches the proof of a record and checks it here, in the reader's browser, with the keys that the reader believes. */
export default function ProofView({ run, seq, record, told }: { run: RunStore; seq: number; record: RunRecord | undefined; told: (overall: Overall) => void }) {
  const believed = useCell(trust);
  const version = useCell(run.version);
  const [work, setWork] = useState<Work>({ state: "busy" });
  const [again, setAgain] = useState(0);
  // A record of a live run has no proof for about a second; then it is asked for again.
  const pending = work.state === "done" && work.report.overall === "pending";
  useEffect(() => {
    const stop = new AbortController();
    setWork((now) => (now.state === "done" && now.report.overall === "pending" ? now : { state: "busy" }));
    check(run, seq, record, stop.signal).then((done) => {
      if (stop.signal.aborted) return;
      setWork(done);
      if (done.state === "done") told(done.report.overall);
    });
    return () => stop.abort();
  }, [run, seq, believed, again, pending ? version : 0]);
  if (work.state === "busy") return <Loading what="Checking the proof" />;
  if (work.state === "error") return <ErrorBox error={work.error} retry={() => setAgain(again + 1)} />;
  return <Result work={work} run={run} seq={seq} retry={() => setAgain(again + 1)} />;
}

async function check(run: RunStore, seq: number, record: RunRecord | undefined, signal: AbortSignal): Promise<Work> {
  try {
    const document = await getBytes(run.path("records", seq, "proof"), signal);
    const cannot = await cannotVerify();
    if (cannot) return { state: "done", document, cannot, report: { overall: "cannot", text: cannot, steps: [] } };
    return { state: "done", document, report: await verifyRecord(document, { run: run.name, seq, record }, trust.get()) };
  } catch (e) {
    return { state: "error", error: e instanceof Problem ? e : new Problem({ title: "The proof could not be read", detail: String(e) }) };
  }
}

function Result({ work, run, seq, retry }: { work: Extract<Work, { state: "done" }>; run: RunStore; seq: number; retry: () => void }) {
  const { report } = work;
  const [tone, title] = overall[report.overall];
  return (
    <div class={`proof ${report.overall}`}>
      <div class="verdict" role="status" aria-live="polite">
        <Badge tone={tone}>{title}</Badge>
        <p>{report.text}</p>
      </div>
      {work.cannot && <p>Download the proof and check it with <code>custody verify</code>, or as docs/verify.md describes.</p>}
      <ol class="chain">{report.steps.map((s) => <StepView key={s.name + s.outcome} step={s} />)}</ol>
      <Keys offered={report.offered}>
        The key that came with the answer was used. This proves that the parts are consistent, not who signed them.
      </Keys>
      <p class="actions">
        <Download name={`${run.name}-${seq}.proof.json`} value={work.document} />
        <button type="button" onClick={retry}>Check again</button>
      </p>
      <p class="muted small">
        It proves that the host signed this, at this place. It does not prove that the host was honest when it signed, that the record is all that
        happened, or that what the guest claims is true.
      </p>
    </div>
  );
}

const names: Record<Step["name"], string> = {
  record: "Record", segment: "Segment's tree", manifest: "Signed manifest", log: "Host's log", checkpoint: "Checkpoint", witnesses: "Witnesses", stamp: "Time stamp",
};
const outcomes: Record<Outcome, [Tone, string]> = { holds: ["ok", "holds"], fails: ["bad", "does not hold"], cannot: ["warn", "cannot be judged"], none: ["plain", "not checked"] };

function StepView({ step }: { step: Step }) {
  const [tone, words] = outcomes[step.outcome];
  return (
    <li class={step.outcome}>
      <div><strong>{names[step.name]}</strong> <Badge tone={tone}>{words}</Badge></div>
      <p>{flat(step.text)}</p>
      {step.facts.length > 0 && (
        <details>
          <summary>What was compared</summary>
          <dl class="facts wide">{step.facts.map(([name, value]) => <div><dt>{flat(name)}</dt><dd class="mono wrap">{flat(value)} {value.length >= 64 && <Copy text={value} label={`Copy: ${name}`} />}</dd></div>)}</dl>
        </details>
      )}
    </li>
  );
}

/** Saves a document as it came: verify refuses it in another form. */
function Download({ name, value }: { name: string; value: Bytes }) {
  const save = () => {
    const address = URL.createObjectURL(new Blob([value], { type: "application/json" }));
    const a = document.createElement("a");
    a.href = address;
    a.download = name;
    a.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  return <button type="button" onClick={save}>Download the proof</button>;
}
