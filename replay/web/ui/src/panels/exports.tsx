import { useEffect, useState } from "preact/hooks";
import { del, href, post, Problem, useGet } from "../api";
import { Badge, Time, Words, type Tone } from "../components/basic";
import { Empty, ErrorBox, Loaded } from "../components/boxes";
import { runPath } from "../api";
import { bytes, count, flat, plural } from "../text";
import { runKinds, type Kind } from "../types";
import { Days, Page, RunLink, spanOf } from "./pages";
import { Runs } from "./reports";
import { can, Choice, Needs } from "./shared";

const formats: [id: string, title: string, about: string, oneRun: boolean][] = [
  ["ndjson", "NDJSON", "the exact records, one per line", false], ["csv", "CSV", "for a spreadsheet", false], ["ocsf", "OCSF", "for a SIEM, OCSF 1.8", false], ["ecs", "ECS", "for Elastic", false],
  ["cef", "CEF", "for a SIEM with line-based input", false], ["asciicast", "asciicast", "terminal output for asciinema", true], ["perfetto", "Perfetto", "a trace for a trace viewer", true],
];

interface Job {
  id: string;
  state: "queued" | "running" | "done" | "failed";
  format: string;
  runs: number;
  bytes: number;
  created: string;
  ended: string | null;
  expires?: string;
  detail?: string;
  hint?: string;
}

/** Exports: of one run or a part of it directly, of many as a job. */
export default function ExportsScreen({ params }: { params: URLSearchParams }) {
  const run = params.get("run");
  return (
    <Page title="Exports" lead="Records in the formats of other tools. The record itself and a bundle can be verified; an export cannot. Each export is an entry in the access log.">
      {!can("auditor") ? <Needs role="auditor" what="An export" /> : run ? <OfRun run={run} params={params} /> : <Jobs />}
    </Page>
  );
}

/** One run, or a part of it, directly. */
function OfRun({ run, params }: { run: string; params: URLSearchParams }) {
  const [format, setFormat] = useState("ndjson");
  const [picked, setPicked] = useState<ReadonlySet<Kind>>(new Set());
  const [whole, setWhole] = useState(false);
  const [from, to] = [params.get("from") ?? "", params.get("to") ?? ""];
  const part = Boolean(from || to) && !whole;
  const query = { format, kind: [...picked].join(","), ...(part ? { from, to } : {}) };
  return (
    <>
      <p>Of the run <RunLink run={run} />{(from || to) && <> · <label class="check"><input type="checkbox" checked={!whole} onChange={(e) => setWhole(!e.currentTarget.checked)} /> only from <span class="num">{flat(from) || "its start"}</span> to <span class="num">{flat(to) || "its end"}</span></label></>}</p>
      <Formats value={format} set={setFormat} several={false} />
      <Kinds picked={picked} set={setPicked} />
      <p class="actions">
        <a class="button primary" href={href(runPath(run, "export"), query)} download>Download</a>
        <a class="button" href={href(runPath(run, "bundle"))} download>Bundle of the run, to verify offline</a>
      </p>
    </>
  );
}

function Formats({ value, set, several }: { value: string; set: (id: string) => void; several: boolean }) {
  return (
    <fieldset class="frameworks"><legend>Format</legend>
      {formats.map(([id, title, about, oneRun]) => (
        <label class={id === value ? "on" : undefined}><input type="radio" name="format" value={id} checked={id === value} disabled={several && oneRun} onChange={() => set(id)} />
          <span><strong>{title}</strong><br /><span class="muted">{about}{several && oneRun ? "; of one run only" : ""}</span></span></label>
      ))}
    </fieldset>
  );
}

function Kinds({ picked, set }: { picked: ReadonlySet<Kind>; set: (picked: ReadonlySet<Kind>) => void }) {
  const toggle = (k: Kind) => {
    const next = new Set(picked);
    if (!next.delete(k)) next.add(k);
    set(next);
  };
  return (
    <fieldset class="kinds"><legend>Kinds{picked.size === 0 && ": all"}</legend>
      {runKinds.map((k) => <label class="check"><input type="checkbox" checked={picked.has(k)} onChange={() => toggle(k)} /> {k}</label>)}
    </fieldset>
  );
}

/** Exports of many runs are made in the background. */
function Jobs() {
  const got = useGet<{ exports: Job[] }>("/exports");
  const [error, setError] = useState<Problem | null>(null);
  const busy = got.data?.exports.some((j) => j.state === "queued" || j.state === "running");
  useEffect(() => {
    if (!busy) return;
    const timer = setInterval(got.reload, 1500);
    return () => clearInterval(timer);
  }, [busy, got.reload]);
  const act = async (what: () => Promise<unknown>) => {
    try {
      await what();
      setError(null);
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
    got.reload();
  };
  return (
    <>
      <NewJob start={(body) => act(() => post("/exports", body))} />
      {error && <ErrorBox error={error} />}
      <section class="part-of-page"><h2>Your exports</h2>
        <Loaded got={got} what="Fetching your exports">{(d) => (d.exports.length
          ? <List jobs={d.exports} end={(id) => act(() => del(`/exports/${encodeURIComponent(id)}`))} />
          : <Empty title="You have none">Choose runs or a time above. A file is kept for an hour.</Empty>)}</Loaded>
      </section>
    </>
  );
}

function NewJob({ start }: { start: (body: unknown) => void }) {
  const [format, setFormat] = useState("ndjson");
  const [by, setBy] = useState<"runs" | "days">("runs");
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [days, setDays] = useState({ from: "", until: "" });
  const [picked, setPicked] = useState<ReadonlySet<Kind>>(new Set());
  const several = by === "days" || chosen.size > 1;
  const ready = (by === "runs" ? chosen.size > 0 : Boolean(days.from || days.until)) && !(several && formats.find(([id]) => id === format)?.[3]);
  const submit = (e: Event) => {
    e.preventDefault();
    start({ format, ...(picked.size ? { kinds: [...picked] } : {}), ...(by === "runs" ? { runs: [...chosen] } : spanOf(days.from, days.until)) });
  };
  return (
    <form onSubmit={submit}>
      <Formats value={format} set={setFormat} several={several} />
      <Kinds picked={picked} set={setPicked} />
      <div class="controls"><Choice name="Which runs" value={by} set={setBy} options={[["runs", "runs that I choose"], ["days", "all runs of a time"]]} /></div>
      {by === "days" ? <div class="search-form"><Days {...days} set={(d) => setDays({ ...days, ...d })} /></div> : <Runs chosen={chosen} set={setChosen} />}
      <p class="take"><button type="submit" class="primary" disabled={!ready}>Start the export{by === "runs" && chosen.size > 0 ? ` of ${plural(chosen.size, "run")}` : ""}</button>{!ready && <span class="muted"> Choose {by === "runs" ? "at least one run" : "a day"} first.</span>}</p>
    </form>
  );
}

const tones: Record<Job["state"], Tone> = { queued: "plain", running: "busy", done: "ok", failed: "bad" };

function List({ jobs, end }: { jobs: Job[]; end: (id: string) => void }) {
  return (
    <table class="wide-table" aria-live="polite">
      <thead><tr><th scope="col">Begun</th><th scope="col">Format</th><th scope="col" class="right">Runs</th><th scope="col">State</th><th scope="col" class="right">Size</th><th scope="col">Kept until</th><th scope="col"><span class="sr">Actions</span></th></tr></thead>
      <tbody>{[...jobs].reverse().map((j) => (
        <tr key={j.id}>
          <td><Time at={j.created} date digits={0} /></td><th scope="row">{flat(j.format)}</th><td class="right num">{count(j.runs)}</td>
          <td><Badge tone={tones[j.state] ?? "plain"}>{j.state}</Badge>{j.detail && <div><Words text={j.detail} mono={false} limit={300} /> {j.hint && <span class="muted">{flat(j.hint)}</span>}</div>}</td>
          <td class="right num">{bytes(j.bytes)}</td><td>{j.expires ? <Time at={j.expires} digits={0} /> : "–"}</td>
          <td>{j.state === "done" && <a class="button" href={href(`/exports/${encodeURIComponent(j.id)}/file`)} download>Download</a>} <button type="button" onClick={() => end(j.id)}>{j.state === "done" || j.state === "failed" ? "Forget" : "Stop"}</button></td>
        </tr>
      ))}</tbody>
    </table>
  );
}
