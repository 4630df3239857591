import { useMemo, useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Time, classes } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { Table, type Column } from "../components/table";
import type { RunStore } from "../runstore";
import { command, count, flat } from "../text";
import { span } from "../time";
import type { Items, Proc } from "../types";
import { processRows, type ProcessRow } from "./processrows";
import { Argv, FilterField } from "./shared";

/** Every process of the run, each below the one that started it, as the guest's sensor claims. */
export default function ProcessesPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<Proc>>(run.path("processes"), {}, version);
  return <div class="panel full"><Loaded got={got} what="Gathering the processes">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

function Shown({ run, all }: { run: RunStore; all: Proc[] }) {
  const [text, setText] = useState("");
  const [folded, setFolded] = useState<ReadonlySet<number>>(new Set());
  const seq = useCell(run.seq);
  const rows = useMemo(() => {
    const needle = text.trim().toLowerCase();
    return processRows(all, folded, needle === "" ? undefined : (p) => `${p.pid} ${flat(p.exe)} ${command(p.argv)}`.toLowerCase().includes(needle));
  }, [all, folded, text]);
  const columns = useMemo(() => columnsOf(run, folded, (of) => {
    const next = new Set(folded);
    if (!next.delete(of)) next.add(of);
    setFolded(next);
  }), [run, folded]);
  if (all.length === 0) return <Empty title="No process was started">The guest's sensor reported no exec.</Empty>;
  return (
    <>
      <div class="controls">
        <FilterField label="Filter processes" placeholder="pid, program or argument" value={text} set={setText} />
        <span class="muted">{count(all.length)} started, as the guest claims</span>
      </div>
      <div class="fill">
        <Table label="Processes" columns={columns} rows={rows} keyOf={(r) => r.p.seq} selected={rows.some((r) => r.p.seq === seq) ? seq : null} height={30}
          onSelect={(r) => run.open(r.p.seq, r.p.start)} rowClass={(r) => classes(!r.found && "above")}
          empty={<Empty title="No process is like that">Clear the filter to see all {count(all.length)}.</Empty>} />
      </div>
    </>
  );
}

const deepest = 16; // levels that are indented; a tree can be deeper, and is then drawn at that depth

function columnsOf(run: RunStore, folded: ReadonlySet<number>, fold: (seq: number) => void): Column<ProcessRow>[] {
  return [
    {
      id: "process", title: "Process", width: "minmax(14rem, 1fr)",
      cell: ({ p, depth, parents }) => (
        <span class="process" style={{ paddingLeft: `${Math.min(depth, deepest)}rem` }}>
          {parents ? (
            <button type="button" class="fold" aria-expanded={!folded.has(p.seq)} aria-label={`${folded.has(p.seq) ? "Show" : "Hide"} what process ${p.pid} started`}
              onClick={(e) => { e.stopPropagation(); fold(p.seq); }}>{folded.has(p.seq) ? "▸" : "▾"}</button>
          ) : <span class="fold" aria-hidden="true">·</span>}
          <span class="pid">{p.pid}</span>{depth > 0 && <span class="sr"> started by {p.ppid} </span>} <Argv argv={p.argv} limit={160} />
        </span>
      ),
    },
    { id: "start", title: "Began", width: "7.4rem", cell: ({ p }) => <Time at={p.start} /> },
    { id: "lasted", title: "Lasted", width: "5.6rem", right: true, cell: ({ p }) => <span class="num">{p.end ? span(run.instant(p.end) - run.instant(p.start)) : "–"}</span> },
    { id: "end", title: "Came to", width: "6.4rem", cell: ({ p }) => <End p={p} /> },
  ];
}

function End({ p }: { p: Proc }) {
  if (p.replaced) return <span class="muted">another exec</span>;
  if (!p.end) return <Badge tone="busy">running</Badge>;
  if (p.synthetic) return <span class="muted" title="No exit was observed; the run's end is used">not seen</span>;
  if (p.signal) return <Badge tone="bad">signal {p.signal}</Badge>;
  if (p.code === null) return <span class="muted">unknown</span>;
  return <Badge tone={p.code === 0 ? "ok" : "bad"}>exit {p.code}</Badge>;
}
