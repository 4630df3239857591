import { useMemo, useState } from "preact/hooks";
import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Fact, Facts, Hash, Time, Words, classes } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { Table, type Column } from "../components/table";
import type { RunStore } from "../runstore";
import { bytes, count, decode, flat } from "../text";
import type { FileHistory, Items } from "../types";
import { By, Choice, FilterField, SearchFor, Section, Seq } from "./shared";

type Which = "written" | "deleted" | "read" | "all";

/** Every path that the guest's sensor reported, with hashes, and what happened there. */
export default function FilesPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<FileHistory>>(run.path("files"), {}, version);
  return <div class="panel full"><Loaded got={got} what="Gathering the files">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

const wanted: Record<Which, (f: FileHistory) => boolean> = {
  written: (f) => f.written && !f.deleted && f.moved_to === undefined, deleted: (f) => Boolean(f.deleted) || f.moved_to !== undefined, read: (f) => !f.written, all: () => true,
};

function Shown({ run, all }: { run: RunStore; all: FileHistory[] }) {
  const [which, setWhich] = useState<Which>("all");
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const rows = useMemo(() => {
    const needle = text.trim().toLowerCase();
    return all.filter((f) => wanted[which](f) && (needle === "" || decode(f.path).toLowerCase().includes(needle) || f.sha256?.includes(needle)));
  }, [all, which, text]);
  const columns = useMemo(() => columnsOf(run), [run]);
  const current = all.find((f) => keyOf(f) === chosen);
  if (all.length === 0) return <Empty title="No file was touched">The guest's sensor reported no file that was created, written, renamed or deleted, and no large file that was read.</Empty>;
  return (
    <>
      <div class="controls">
        <FilterField label="Filter files" placeholder="path or beginning of a hash" value={text} set={setText} />
        <Choice name="Which files" value={which} set={setWhich} options={[["all", `all ${count(all.length)}`], ["written", `there now ${count(all.filter(wanted.written).length)}`], ["deleted", "gone"], ["read", "only read"]]} />
        <span class="muted">as the guest claims</span>
      </div>
      <div class="fill">
        <Table label="Files" columns={columns} rows={rows} keyOf={keyOf} selected={chosen} height={28} onSelect={(f) => { setChosen(keyOf(f)); run.open(f.seq, f.last); }}
          rowClass={(f) => classes(f.deleted && "gone-row")} empty={<Empty title="No file is like that">Clear the filter to see all {count(all.length)}.</Empty>} />
      </div>
      {current && <Details run={run} f={current} />}
    </>
  );
}

const keyOf = (f: FileHistory) => (typeof f.path === "string" ? "s" + f.path : "b" + f.path.base64);
const order = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

function columnsOf(run: RunStore): Column<FileHistory>[] {
  return [
    { id: "path", title: "Path", width: "minmax(0, 1fr)", cell: (f) => <Words text={f.path} limit={200} class="path" />, sort: (a, b) => order(decode(a.path), decode(b.path)) },
    { id: "what", title: "Now", width: "6.4rem", cell: (f) => <Now f={f} />, sort: (a, b) => order(nowOf(a), nowOf(b)) },
    { id: "size", title: "Size", width: "4.6rem", right: true, cell: (f) => <span class="num">{bytes(f.size)}</span>, sort: (a, b) => a.size - b.size },
    { id: "hash", title: "SHA-256", width: "10.7rem", cell: (f) => (f.sha256 ? <Hash value={f.sha256} length={10} /> : <span class="muted" title={flat(f.unhashed)}>{f.unhashed ? "not hashed" : "–"}</span>), sort: (a, b) => order(a.sha256 ?? "", b.sha256 ?? "") },
    { id: "changes", title: "Events", width: "4.6rem", right: true, cell: (f) => <span class="num">{count(f.changes.length)}</span>, sort: (a, b) => a.changes.length - b.changes.length },
    { id: "last", title: "Last", width: "7.8rem", cell: (f) => <Time at={f.last} />, sort: (a, b) => run.instant(a.last) - run.instant(b.last) },
  ];
}

function nowOf(f: FileHistory): string {
  if (f.deleted) return "deleted";
  if (f.moved_to !== undefined) return "moved";
  return f.written ? "written" : "read";
}

function Now({ f }: { f: FileHistory }) {
  const now = nowOf(f);
  return <Badge tone={now === "deleted" ? "bad" : now === "moved" ? "warn" : now === "written" ? "info" : "plain"}>{now}</Badge>;
}

function Details({ run, f }: { run: RunStore; f: FileHistory }) {
  return (
    <div class="details" role="region" aria-label="The chosen file">
      <h2><Words text={f.path} limit={500} /></h2>
      <Facts>
        <Fact name="Last change"><Seq run={run} seq={f.seq} time={f.last} /> by <By run={run} by={f.by} /></Fact>
        {f.sha256 && <Fact name="SHA-256"><code class="wrap">{flat(f.sha256)}</code> <SearchFor by="hash" value={f.sha256}>this content in all runs</SearchFor></Fact>}
        {f.unhashed && <Fact name="No hash because">{flat(f.unhashed)}</Fact>}
        {f.moved_to !== undefined && <Fact name="Moved to"><Words text={f.moved_to} limit={500} /></Fact>}
        <Fact name="This path"><SearchFor by="path" value={decode(f.path)}>in all runs</SearchFor></Fact>
      </Facts>
      <Section title="What happened" n={f.changes.length}>
        <table class="plain-table">
          <thead><tr><th scope="col">Record</th><th scope="col">Time</th><th scope="col">Operation</th><th scope="col" class="right">Size</th><th scope="col">SHA-256</th><th scope="col">By (guest claims)</th></tr></thead>
          <tbody>{f.changes.slice(-500).map((c) => (
            <tr><td><Seq run={run} seq={c.seq} time={c.time} /></td><td><Time at={c.time} /></td>
              <th scope="row">{flat(c.op)}{c.from !== undefined && <> from <Words text={c.from} limit={100} /></>}</th>
              <td class="right num">{bytes(c.size)}</td><td><Hash value={c.sha256} length={10} /></td><td><By run={run} by={c.by} /></td></tr>
          ))}</tbody>
        </table>
        {f.changes.length > 500 && <p class="muted">The last 500 of {count(f.changes.length)}.</p>}
      </Section>
    </div>
  );
}
