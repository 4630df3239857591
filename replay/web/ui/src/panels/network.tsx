import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Fact, Facts, Length, Seen, Time, Words, classes } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { Table, type Column } from "../components/table";
import type { RunStore } from "../runstore";
import { bytes, count, decode, flat, plural } from "../text";
import { span } from "../time";
import type { Connection, HTTPRequest, Items } from "../types";
import { Argument, Bars, type Mark, type Stretch } from "./bars";
import { By, Choice, FilterField, SearchFor, Section, Seq, VerdictBadge } from "./shared";

type Which = "all" | "allowed" | "denied" | "doubt";

/** Attempts to connect, in order of time: query, connection, requests, bytes, and the process that claims it. */
export default function NetworkPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<Connection>>(run.path("connections"), {}, version);
  return <div class="panel full"><Loaded got={got} what="Gathering the connections">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

const wanted: Record<Which, (c: Connection) => boolean> = {
  all: () => true, allowed: (c) => c.verdict === "allow" && c.state !== "revoke", denied: (c) => c.verdict === "deny", doubt: (c) => Boolean(c.unclaimed || c.unseen),
};

function Shown({ run, all }: { run: RunStore; all: Connection[] }) {
  const [which, setWhich] = useState<Which>("all");
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const rows = useMemo(() => {
    const needle = text.trim().toLowerCase();
    return all.filter((c) => wanted[which](c) && (needle === "" || haystack(c).includes(needle)));
  }, [all, which, text]);
  const columns = useMemo(() => columnsOf(run, all), [run, all]);
  const current = all.find((c) => c.seq === chosen);
  const totals = useMemo(() => ({ denied: all.filter(wanted.denied).length, doubt: all.filter(wanted.doubt).length, out: sum(all, "bytes_out"), in: sum(all, "bytes_in") }), [all]);
  if (all.length === 0) return <Empty title="No egress">No DNS query, connection or request was recorded in this run.</Empty>;
  return (
    <>
      <div class="controls">
        <FilterField label="Filter connections" placeholder="name, address, rule, process" value={text} set={setText} />
        <Choice name="Verdict" value={which} set={setWhich} options={[["all", `all ${count(all.length)}`], ["allowed", "allowed"], ["denied", `denied ${count(totals.denied)}`], ["doubt", `in doubt ${count(totals.doubt)}`]]} />
        <span class="muted num">{bytes(totals.out)} out, {bytes(totals.in)} in</span>
      </div>
      <div class="fill">
        <Table label="Connections" columns={columns} rows={rows} keyOf={(c) => c.seq} selected={chosen || null} height={30}
          onSelect={(c) => { setChosen(c.seq); run.open(c.seq, c.start); }} rowClass={rowClass}
          empty={<Empty title="No connection is like that">Clear the filter to see all {count(all.length)}.</Empty>} />
      </div>
      {current && <Details run={run} c={current} />}
    </>
  );
}

const rowClass = (c: Connection) => classes(c.verdict === "deny" && "denied-row", (c.unclaimed || c.unseen) && "doubt-row");
const sum = (all: Connection[], what: "bytes_out" | "bytes_in") => all.reduce((n, c) => n + c[what], 0);

function haystack(c: Connection): string {
  return [decode(c.name), c.dst_ip, c.dst_port, c.proto, c.state, c.rule, c.reason, c.peer, decode(c.sni), decode(c.by?.name), c.by?.pid].filter(Boolean).join("\n").toLowerCase();
}

function columnsOf(run: RunStore, all: Connection[]): Column<Connection>[] {
  const scale = scaleOf(run, all);
  return [
    { id: "verdict", title: "Verdict", width: "7.6rem", cell: (c) => <VerdictBadge verdict={c.verdict} state={c.state} />, sort: (a, b) => order(a.verdict, b.verdict) || order(a.state, b.state) },
    { id: "to", title: "To", width: "minmax(0, 1.5fr)", cell: (c) => <To c={c} />, sort: (a, b) => order(decode(a.name), decode(b.name)) },
    { id: "by", title: "Claimed by", width: "8.4rem", cell: (c) => <ByCell run={run} c={c} />, sort: (a, b) => order(decode(a.by?.name), decode(b.by?.name)) },
    { id: "out", title: "Out", width: "5.1rem", right: true, cell: (c) => <span class="num">{c.bytes_out ? bytes(c.bytes_out) : "–"}</span>, sort: (a, b) => a.bytes_out - b.bytes_out },
    { id: "in", title: "In", width: "5.1rem", right: true, cell: (c) => <span class="num">{c.bytes_in ? bytes(c.bytes_in) : "–"}</span>, sort: (a, b) => a.bytes_in - b.bytes_in },
    { id: "start", title: "When", width: "minmax(0, 1fr)", cell: (c) => <Bars {...scale} label={barLabel(run, c)} stretches={stretches(run, c)} marks={marks(run, c)} />,
      sort: (a, b) => run.instant(a.start) - run.instant(b.start) },
  ];
}

const order = (a: string | undefined, b: string | undefined) => ((a ?? "") < (b ?? "") ? -1 : (a ?? "") > (b ?? "") ? 1 : 0);

/** The time that the waterfall spans: from the first of them to the last. */
function scaleOf(run: RunStore, all: Connection[]): { from: number; to: number } {
  let from = Infinity;
  let to = 0;
  for (const c of all) {
    from = Math.min(from, run.instant(c.dns?.time ?? c.start));
    to = Math.max(to, c.end ? run.instant(c.end) : run.end.get());
  }
  return { from: Number.isFinite(from) ? from : 0, to: Math.max(to, from + 1) };
}

function To({ c }: { c: Connection }) {
  return (
    <span class="to">
      <Words text={c.name} limit={80} /><span class="muted num">{c.dst_port ? `:${c.dst_port}` : ""} {flat(c.proto)}</span>
      {c.count && c.count > 1 ? <span class="muted num"> ×{count(c.count)}</span> : null}
    </span>
  );
}

function ByCell({ run, c }: { run: RunStore; c: Connection }) {
  if (c.unclaimed) return <Badge tone="warn" title="The host saw it, and no process in the guest claims it">unclaimed</Badge>;
  return <><By run={run} by={c.by} />{c.unseen && <Badge tone="warn" title="A process in the guest claims it, but the host did not see it">unseen</Badge>}</>;
}

function stretches(run: RunStore, c: Connection): Stretch[] {
  const start = run.instant(c.start);
  const mood = c.state === "revoke" ? "revoke" : c.verdict === "deny" ? "deny" : c.verdict === "allow" ? "ok" : "claim";
  const open = !c.end && c.state === "open";
  const end = c.end ? run.instant(c.end) : open ? run.end.get() : start;
  return [{ from: start, to: end, mood, open }];
}

function marks(run: RunStore, c: Connection): Mark[] {
  const list: Mark[] = c.requests.map((r) => ({ at: run.instant(r.start), mood: r.verdict === "deny" ? "deny" : "request" }));
  if (c.dns && c.proto !== "dns") list.push({ at: run.instant(c.dns.time), mood: c.dns.verdict === "deny" ? "deny" : "question" });
  return list;
}

function barLabel(run: RunStore, c: Connection): string {
  const start = run.instant(c.start);
  const length = c.end ? `for ${span(run.instant(c.end) - start)}` : c.state === "open" ? "still open" : "";
  return `from ${run.at(start)} ${length}${c.requests.length ? `, ${plural(c.requests.length, "request")}` : ""}`;
}

/** All that is known of one connection, each part with the record that shows it. */
function Details({ run, c }: { run: RunStore; c: Connection }) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.scrollIntoView({ block: "nearest" }), [c.seq]);
  return (
    <div class="details" ref={box} role="region" aria-label="The chosen connection">
      <h2><Words text={c.name} limit={200} />{c.dst_port ? <span class="num">:{c.dst_port}</span> : null} <VerdictBadge verdict={c.verdict} state={c.state} /></h2>
      {c.unclaimed && <p class="flag warn"><Badge tone="warn">unclaimed</Badge> The host saw this connection. No process in the guest claims it: the sensor lost it, or something hid it.</p>}
      {c.unseen && <p class="flag warn"><Badge tone="warn">unseen</Badge> A process in the guest claims this connection. The host, which carries all traffic, did not see it.</p>}
      <Facts>
        <Fact name="Record"><Seq run={run} seq={c.seq} time={c.start} /> <Seen by={c.observer} /></Fact>
        <Fact name="Began"><Time at={c.start} date /></Fact>
        <Fact name="Ended">{c.end ? <><Time at={c.end} /> {c.end_seq ? <Seq run={run} seq={c.end_seq} time={c.end} /> : null}</> : c.state === "open" ? "still open" : "–"}</Fact>
        {c.rule && <Fact name="Rule"><Words text={c.rule} /></Fact>}
        {c.reason && <Fact name="Reason">{flat(c.reason)}</Fact>}
        <Fact name="Address"><span class="mono">{flat(c.dst_ip ?? "–")}</span>{c.peer && <> reached by the gateway at <span class="mono">{flat(c.peer)}</span></>} <SearchFor by="host" value={decode(c.name)} /></Fact>
        {c.sni && <Fact name="Asked for (SNI)"><Words text={c.sni} /></Fact>}
        <Fact name="Process"><By run={run} by={c.by} /> {c.by && <span class="muted">as the guest claims{c.claim_seq ? <>, <Seq run={run} seq={c.claim_seq} /></> : null}</span>}</Fact>
        {c.dns && <Fact name="Question"><Seq run={run} seq={c.dns.seq} time={c.dns.time} /> {flat(c.dns.type)} {flat(c.dns.rcode)} <span class="mono">{c.dns.answers.map((a) => flat(a)).join(", ")}</span> {c.dns.latency_ns ? <span class="muted">in <Length ns={c.dns.latency_ns} /></span> : null} <VerdictBadge verdict={c.dns.verdict} /></Fact>}
        <Fact name="Carried"><span class="num">{bytes(c.bytes_out)} out, {bytes(c.bytes_in)} in</span></Fact>
      </Facts>
      {c.requests.length > 0 && <Section title="Requests" n={c.requests.length}><Requests run={run} list={c.requests} /></Section>}
    </div>
  );
}

function Requests({ run, list }: { run: RunStore; list: HTTPRequest[] }) {
  return (
    <table class="plain-table">
      <thead><tr><th scope="col">Record</th><th scope="col">Request</th><th scope="col">Status</th><th scope="col">Verdict</th><th scope="col">Credential</th><th scope="col" class="right">Out / in</th><th scope="col" class="right">Lasted</th></tr></thead>
      <tbody>{list.slice(0, 500).map((r) => (
        <tr>
          <td><Seq run={run} seq={r.seq} time={r.start} /></td>
          <th scope="row"><Words text={r.method} limit={20} /> <Words text={r.path} limit={160} />{r.llm && <Argument>model's call {flat(r.llm)}</Argument>}</th>
          <td class="num">{r.status ?? "–"}</td>
          <td><VerdictBadge verdict={r.verdict} />{r.reason && <div class="muted">{flat(r.reason)}</div>}</td>
          <td>{r.credential ? <Words text={r.credential} /> : <span class="muted">none</span>}</td>
          <td class="right num">{bytes(r.bytes_out)} / {bytes(r.bytes_in)}</td>
          <td class="right num">{span(run.instant(r.end) - run.instant(r.start))}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}
