import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Problem, tenant, useGet } from "../api";
import { looked, useCell } from "../cell";
import { Badge, Length, Time, Words } from "../components/basic";
import { Empty, ErrorBox, Loading } from "../components/boxes";
import { type Column, Table } from "../components/table";
import { amend, go, to } from "../router";
import { count, flat, plural } from "../text";
import { parse, span } from "../time";
import type { RunItem, RunPage } from "../types";
import { Proof, Result, Status, Tier } from "./words";

const pageSize = 200;

/** All runs, the newest first; running ones are kept up to date. */
export function Runs({ params }: { params: URLSearchParams }) {
  const query = {
    status: params.get("status") ?? "", project: params.get("project") ?? "", findings: params.get("findings") ?? "",
    from: params.get("from") ?? "", to: params.get("to") ?? "",
  };
  const list = useRuns(query);
  const [text, setText] = useState("");
  const shown = useMemo(() => {
    const needle = text.trim().toLowerCase();
    return needle && list.rows ? list.rows.filter((r) => [r.run, r.project, r.host, r.tier, r.status, r.result, r.verification?.state].some((t) => flat(t ?? "").toLowerCase().includes(needle))) : list.rows;
  }, [list.rows, text]);
  const filtered = Object.values(query).some(Boolean) || text.trim() !== "";
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Runs</h1>
        <label class="filter-field"><span class="sr">Filter the runs that are listed</span>
          <input type="search" value={text} placeholder="name, project, host, tier, proof" maxLength={200} spellcheck={false} autocomplete="off" onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <Filters query={query} />
        <span class="spring" />
        <span class="muted" role="status">{list.rows && shown ? `${shown.length < list.rows.length ? `${count(shown.length)} of ` : ""}${plural(list.rows.length, "run")}${list.next ? ", more below" : ""}` : ""}</span>
      </div>
      {list.error && <ErrorBox error={list.error} retry={list.reload} />}
      {!list.rows && !list.error && <Loading what="Reading the runs" />}
      {list.rows && <Failing rows={list.rows} />}
      {list.rows && <Unsigned rows={list.rows} />}
      {shown && (
        <div class="fill">
          <Table label="Runs" columns={columns} rows={shown} keyOf={(r) => r.run} onSelect={(r) => go(to(["runs", r.run]))} height={30}
            rowClass={(r) => (r.verification?.state === "fails" || r.verification?.state === "unsigned" ? "failing" : undefined)} onEnd={list.more}
            empty={filtered
              ? <Empty title="No run matches">Remove a filter to see more.</Empty>
              : <Empty title="There are no runs yet">Start one with <code>custody run -- COMMAND</code>. It appears here while it runs.</Empty>}
            foot={list.next ? <p class="muted pad">Reading more…</p> : undefined} />
        </div>
      )}
    </section>
  );
}

/** A failing proof is said in words above everything. */
function Failing({ rows }: { rows: RunItem[] }) {
  const failing = rows.filter((r) => r.verification?.state === "fails");
  if (!failing.length) return null;
  return (
    <div class="alarm" role="alert">
      <strong>{plural(failing.length, "run")} {failing.length === 1 ? "fails" : "fail"} verification: {failing.length === 1 ? "its record is" : "their records are"} not what was sealed.</strong>{" "}
      {failing.slice(0, 3).map((r) => <a href={to(["runs", r.run])}>{r.run} </a>)}
    </div>
  );
}

/** Runs that a writer of the store may have invented. */
function Unsigned({ rows }: { rows: RunItem[] }) {
  const unsigned = rows.filter((r) => r.verification?.state === "unsigned");
  if (!unsigned.length) return null;
  return (
    <div class="alarm" role="alert">
      <strong>No signature covers {plural(unsigned.length, "run")}.</strong> The store has {unsigned.length === 1 ? "its" : "their"} rows, and no host has signed a record of {unsigned.length === 1 ? "it" : "them"}:{" "}
      {unsigned.slice(0, 3).map((r) => <a href={to(["runs", r.run])}>{flat(r.run)} </a>)}
    </div>
  );
}

const by = (of: (r: RunItem) => string) => (a: RunItem, b: RunItem) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0);

const columns: Column<RunItem>[] = [
  { id: "run", title: "Run", width: "minmax(17.5rem, 1fr)", cell: (r) => <a class="mono" href={to(["runs", r.run])} onClick={(e) => e.stopPropagation()}>{flat(r.run)}</a>, sort: by((r) => r.run) },
  { id: "status", title: "Status", width: "7rem", cell: (r) => <Status run={r} />, sort: by((r) => r.status) },
  { id: "result", title: "Result", width: "7.2rem", cell: (r) => <Result run={r} />, sort: by((r) => `${r.result ?? ""} ${r.exit_code ?? ""}`) },
  { id: "proof", title: "Proof", width: "10.5rem", cell: (r) => <Proof verification={r.verification} />, sort: by((r) => r.verification?.state ?? "") },
  { id: "project", title: "Project", width: "minmax(6.8rem, 0.6fr)", cell: (r) => r.project ? <Words text={r.project} limit={80} mono={false} /> : <span class="muted">–</span>, sort: by((r) => flat(r.project ?? "")) },
  { id: "tier", title: "Tier", width: "8.5rem", cell: (r) => <Tier tier={r.tier} quiet />, sort: by((r) => r.tier) },
  { id: "start", title: "Started", width: "13rem", cell: (r) => <Time at={r.start} date digits={0} />, sort: (a, b) => parse(a.start) - parse(b.start) },
  { id: "duration", title: "Duration", width: "6.5rem", right: true, cell: (r) => r.status === "running" ? <Since at={r.start} /> : <Length ns={r.duration_ns} />, sort: (a, b) => a.duration_ns - b.duration_ns },
  { id: "events", title: "Records", width: "6.4rem", right: true, cell: (r) => <span class="num">{count(r.events)}</span>, sort: (a, b) => a.events - b.events },
  {
    id: "findings", title: "Findings", width: "8rem", right: true, sort: (a, b) => a.findings - b.findings,
    cell: (r) => r.findings > 0 ? <Badge tone="warn">{plural(r.findings, "finding")}</Badge> : <span class="muted">none</span>,
  },
  {
    id: "gaps", title: "Gaps", width: "5.8rem", right: true, sort: (a, b) => a.gaps - b.gaps,
    cell: (r) => r.gaps > 0 ? <Badge tone="warn" title={`${count(r.lost)} events lost`}>{plural(r.gaps, "gap")}</Badge> : <span class="muted">none</span>,
  },
];

function Since({ at }: { at: string }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return <span class="num">{span(Math.max(0, now - parse(at)))}</span>;
}

function Filters({ query }: { query: Record<string, string> }) {
  const projects = useGet<RunPage>("/runs", { limit: pageSize });
  const names = useMemo(() => [...new Set(projects.data?.runs.map((r) => r.project).filter(Boolean))].sort(), [projects.data]);
  if (query["project"] && !names.includes(query["project"])) names.push(query["project"]);
  return (
    <div class="filter-row" role="search" aria-label="Narrow the runs">
      <label><span class="sr">Status</span>
        <select value={query["status"]} onChange={(e) => amend({ status: e.currentTarget.value })}>
          <option value="">Any status</option><option value="running">Running</option><option value="sealed">Sealed</option><option value="interrupted">Interrupted</option>
        </select>
      </label>
      {names.length > 0 && (
        <label><span class="sr">Project</span>
          <select value={query["project"]} onChange={(e) => amend({ project: e.currentTarget.value })}>
            <option value="">Every project</option>{names.map((n) => <option value={n}>{flat(n).slice(0, 60)}</option>)}
          </select>
        </label>
      )}
      <label class="check"><input type="checkbox" checked={query["findings"] === "true"} onChange={(e) => amend({ findings: e.currentTarget.checked ? "true" : "" })} /> with findings</label>
      <DateField name="from" label="From" value={query["from"] ?? ""} />
      <DateField name="to" label="to" value={query["to"] ?? ""} />
      {Object.values(query).some(Boolean) && <button type="button" class="link" onClick={() => amend({ status: "", project: "", findings: "", from: "", to: "" })}>Clear</button>}
    </div>
  );
}

/** A day in UTC: the first moment of it as from, the first after it as to. */
function DateField({ name, label, value }: { name: "from" | "to"; label: string; value: string }) {
  const shift = name === "to" ? 864e5 : 0;
  const ms = parse(value);
  const day = Number.isNaN(ms) ? "" : new Date(ms - shift).toISOString().slice(0, 10);
  const set = (day: string) => amend({ [name]: day ? new Date(Date.parse(`${day}T00:00:00Z`) + shift).toISOString() : "" });
  return <label class="inline">{label} <input type="date" value={day} aria-label={`${label}, a day in UTC`} onChange={(e) => set(e.currentTarget.value)} /></label>;
}

interface List {
  rows: RunItem[] | null;
  next: string | undefined;
  error: Problem | null;
  more: () => void;
  reload: () => void;
}

/** Pages of runs; the first is asked for again and again, faster while a run goes on or a proof is checked. */
function useRuns(query: Record<string, string>): List {
  const whose = useCell(tenant);
  const key = JSON.stringify([query, whose]);
  const [state, setState] = useState<{ key: string; rows: RunItem[] | null; next?: string | undefined; error: Problem | null }>({ key, rows: null, error: null });
  const busy = useRef(false);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      let wait = 15_000;
      await looked();
      if (stop.signal.aborted) return;
      try {
        const page = await get<RunPage>("/runs", { ...query, limit: pageSize }, stop.signal);
        setState((old) => fresh(old.key === key ? old : { key, rows: null, error: null }, page));
        if (page.runs.some((r) => r.status === "running" || r.verification?.state === "checking")) wait = 3000;
      } catch (e) {
        if (stop.signal.aborted) return;
        setState({ key, rows: null, error: e instanceof Problem ? e : new Problem({ detail: String(e) }) });
        return;
      }
      timer = setTimeout(read, wait);
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, again]);
  const shown = state.key === key ? state : { rows: null, next: undefined, error: null };
  const more = async () => {
    if (!shown.next || busy.current) return;
    busy.current = true;
    try {
      const page = await get<RunPage>("/runs", { ...query, limit: pageSize, cursor: shown.next });
      setState((old) => old.key === key ? { ...old, rows: merge(old.rows ?? [], page.runs), next: page.next } : old);
    } catch (e) {
      setState((old) => ({ ...old, error: e instanceof Problem ? e : new Problem({ detail: String(e) }), next: undefined }));
    }
    busy.current = false;
  };
  return { rows: shown.rows, next: shown.next, error: shown.error, more, reload: () => setAgain((n) => n + 1) };
}

/** The first page again, with what further pages had below it. */
function fresh<S extends { key: string; rows: RunItem[] | null; next?: string | undefined }>(old: S, page: RunPage) {
  if (!old.rows || old.rows.length <= page.runs.length) return { ...old, rows: page.runs, next: page.next, error: null };
  return { ...old, rows: merge(page.runs, old.rows), error: null };
}

function merge(first: RunItem[], second: RunItem[]): RunItem[] {
  const there = new Set(first.map((r) => r.run));
  return [...first, ...second.filter((r) => !there.has(r.run))];
}
