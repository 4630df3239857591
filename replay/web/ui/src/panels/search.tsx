import { useMemo, useState } from "preact/hooks";
import { Badge, Seen, Time, Words } from "../components/basic";
import { Empty } from "../components/boxes";
import { describe } from "../records/describe";
import { go, to, toRecord } from "../router";
import { Marked } from "../screens/words";
import { type Hit, runKinds } from "../types";
import { Days, MoreOf, Page, RunLink, spanOf } from "./pages";
import { usePages } from "./paging";

const ways = [
  ["q", "any text", "text anywhere in a record"], ["hash", "content's SHA-256", "64 hexadecimal digits"], ["path", "file or program", "/workspace/a.txt, exactly"],
  ["host", "host or address", "api.example.com, exactly"], ["argv", "command line", "curl -s"], ["secret", "credential's name", "as in custody.yaml"], ["rule", "finding's rule", "dns-tunnel"],
] as const;
type Way = (typeof ways)[number][0];

/** Search over all runs that the reader may see. What is asked for stands in the address. */
export default function SearchScreen({ params }: { params: URLSearchParams }) {
  const asked = ways.find(([way]) => params.get(way))?.[0];
  const value = asked ? params.get(asked)! : "";
  const kind = params.get("kind") ?? "";
  const [from, until] = [params.get("from") ?? "", params.get("until") ?? ""];
  const query = { [asked ?? "q"]: value, kind, ...spanOf(from, until), limit: 100 };
  const pages = usePages<Hit>(asked ? "/search" : null, query, (a: { hits: Hit[]; next?: string; partial: boolean }) => ({ rows: a.hits, next: a.next, partial: a.partial }));
  return (
    <Page title="Search" lead="All records of all runs that you may see, newest first. Each search is an entry in the access log.">
      <Form key={params.toString()} way={asked ?? "q"} value={value} kind={kind} from={from} until={until} />
      {!asked && <Empty title="What are you looking for?">A file's content by its hash, a host, a path, a command, a credential, a finding, or any text.</Empty>}
      {asked && pages.rows.length > 0 && <Hits hits={pages.rows} />}
      {asked && !pages.loading && !pages.error && pages.rows.length === 0 && !pages.more && <Empty title="Nothing was found">No record matches. Hosts and paths must be exact; for a part of one, use “any text”.</Empty>}
      {asked && <MoreOf pages={pages} what="records" />}
    </Page>
  );
}

function Form(was: { way: Way; value: string; kind: string; from: string; until: string }) {
  const [now, setNow] = useState(was);
  const set = (part: Partial<typeof was>) => setNow({ ...now, ...part });
  const submit = (e: Event) => {
    e.preventDefault();
    go(to(["search"], { [now.way]: now.value.trim(), kind: now.way === "argv" ? "" : now.kind, from: now.from, until: now.until }));
  };
  return (
    <form class="search-form" onSubmit={submit} role="search">
      <label>Look for <select value={now.way} onChange={(e) => set({ way: e.currentTarget.value as Way })}>{ways.map(([way, title]) => <option value={way}>{title}</option>)}</select></label>
      <label class="grow"><span class="sr">What to look for</span>
        <input type="search" value={now.value} required placeholder={ways.find(([way]) => way === now.way)![2]} onInput={(e) => set({ value: e.currentTarget.value })} spellcheck={false} autocomplete="off" />
      </label>
      <label>Kind <select value={now.kind} disabled={now.way === "argv"} onChange={(e) => set({ kind: e.currentTarget.value })}>
        <option value="">any</option>{runKinds.map((k) => <option value={k}>{k}</option>)}
      </select></label>
      <Days from={now.from} until={now.until} set={set} />
      <button type="submit" class="primary">Search</button>
    </form>
  );
}

function Hits({ hits }: { hits: Hit[] }) {
  const runs = useMemo(() => new Set(hits.map((h) => h.run)).size, [hits]);
  return (
    <>
      <p class="muted">In {runs} {runs === 1 ? "run" : "runs"}.</p>
      <table class="wide-table">
        <thead><tr><th scope="col">Time</th><th scope="col">Run</th><th scope="col">Record</th><th scope="col">Kind</th><th scope="col">Seen</th><th scope="col">Contents</th></tr></thead>
        <tbody>{hits.map((h) => (
          <tr key={`${h.run} ${h.seq}`}>
            <td><Time at={h.time} date /></td>
            <td><RunLink run={h.run} /></td>
            <td><a class="seq" href={toRecord(h.run, h.seq, "record")}>#{h.seq}</a></td>
            <td><span class="kind">{h.kind}</span></td>
            <td>{h.observer ? <Seen by={h.observer} /> : null}</td>
            <th scope="row"><Marked mark={h.verification} />{h.record ? <Words text={describe(h.record).words} limit={240} /> : <Badge tone="warn">erased or unreadable</Badge>}</th>
          </tr>
        ))}</tbody>
      </table>
    </>
  );
}
