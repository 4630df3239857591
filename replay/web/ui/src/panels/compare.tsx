import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useGet } from "../api";
import { Badge, Hash, Time, Words } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { go, to, toRecord } from "../router";
import { bytes, count, flat, plural } from "../text";
import { span } from "../time";
import type { RunItem, RunPage, Text, Verdict } from "../types";
import { Page, RunLink } from "./pages";
import { Argv, VerdictBadge } from "./shared";

interface Sight {
  seq: number;
}
interface FileTrait extends Sight {
  path: Text;
  sha256?: string;
  size: number;
  deleted?: boolean;
}
interface Traits {
  programs: (Sight & { argv: Text[]; exe: Text; count: number })[];
  files: FileTrait[];
  hosts: (Sight & { name: Text; port?: number; verdict: Verdict; count: number })[];
  secrets: (Sight & { name: string; step: string; uses: number })[];
  findings: (Sight & { rule: string; detail: string; count: number })[];
}
type Group = keyof Traits;
interface Comparison {
  a: RunItem;
  b: RunItem;
  only_a: Traits;
  only_b: Traits;
  both: Record<Group, number>;
}

/** What one run did and another did not. */
export default function CompareScreen({ params }: { params: URLSearchParams }) {
  const [a, b] = [params.get("a") ?? "", params.get("b") ?? ""];
  const got = useGet<Comparison>(a && b ? "/compare" : null, { a, b });
  return (
    <Page title="Compare two runs" lead="By commands, files with their contents, hosts, credentials and findings. Commands and files are claims of the guests.">
      <Form key={`${a} ${b}`} a={a} b={b} />
      {a && b ? <Loaded got={got} what="Comparing">{(c) => <Shown c={c} />}</Loaded> : <Empty title="Choose two runs">For example one that succeeded and one that failed.</Empty>}
    </Page>
  );
}

function Form(was: { a: string; b: string }) {
  const [now, setNow] = useState(was);
  const runs = useGet<RunPage>("/runs", { limit: 50 });
  const submit = (e: Event) => {
    e.preventDefault();
    go(to(["compare"], { a: now.a.trim(), b: now.b.trim() }));
  };
  return (
    <form class="search-form" onSubmit={submit}>
      <label class="grow">First run <input list="known-runs" value={now.a} required onInput={(e) => setNow({ ...now, a: e.currentTarget.value })} spellcheck={false} autocomplete="off" /></label>
      <label class="grow">Second run <input list="known-runs" value={now.b} required onInput={(e) => setNow({ ...now, b: e.currentTarget.value })} spellcheck={false} autocomplete="off" /></label>
      <datalist id="known-runs">{(runs.data?.runs ?? []).map((r) => <option value={r.run}>{`${flat(r.project)} ${r.status} ${r.start.slice(0, 16)}`}</option>)}</datalist>
      <button type="submit" class="primary">Compare</button>
      <button type="button" onClick={() => go(to(["compare"], { a: now.b, b: now.a }))} disabled={!now.a || !now.b}>Swap</button>
    </form>
  );
}

function Shown({ c }: { c: Comparison }) {
  const differ = differing(c);
  return (
    <>
      <div class="versus">{([["First", c.a], ["Second", c.b]] as const).map(([name, r]) => (
        <div class="versus-run"><h2>{name}: <RunLink run={r.run} /></h2>
          <p><Time at={r.start} date digits={0} /> · {flat(r.project) || "no project"} · {flat(r.status)}{r.exit_code !== null && `, exit ${r.exit_code}`} · {span(r.duration_ns / 1e6)} · {count(r.events)} records · {r.findings > 0 ? <Badge tone="bad">{plural(r.findings, "finding")}</Badge> : "no findings"}</p></div>
      ))}</div>
      <Group title="Findings" name="findings" c={c} row={(f: Traits["findings"][number]) => <><Badge tone="bad">{flat(f.rule)}</Badge> <Words text={f.detail} limit={200} mono={false} /> <Times n={f.count} /></>} />
      <Group title="Hosts" name="hosts" c={c} row={(h: Traits["hosts"][number]) => <><VerdictBadge verdict={h.verdict} /> <Words text={h.name} limit={100} />{h.port ? <span class="num muted">:{h.port}</span> : null} <Times n={h.count} /></>} />
      <Group title="Credentials" name="secrets" c={c} row={(s: Traits["secrets"][number]) => <><Words text={s.name || "the step's own token"} mono={Boolean(s.name)} /> <span class="muted">step {flat(s.step)}, {plural(s.uses, "use")}</span></>} />
      <Group title="Commands" name="programs" c={c} row={(p: Traits["programs"][number]) => <><Argv argv={p.argv} limit={160} /> <Times n={p.count} /></>} />
      {differ.length > 0 && <Differ c={c} list={differ} />}
      <Group title="Files" name="files" c={c} row={(f: FileTrait) => <><Words text={f.path} limit={160} /> {f.deleted ? <Badge tone="warn">deleted</Badge> : <Hash value={f.sha256} length={10} />}</>} />
    </>
  );
}

function Times({ n }: { n: number }) {
  return n > 1 ? <span class="muted num">×{count(n)}</span> : null;
}

/** Files that both runs left under one path, with different content. */
function differing(c: Comparison): { a: FileTrait; b: FileTrait }[] {
  const keyOf = (f: FileTrait) => JSON.stringify(f.path);
  const others = new Map(c.only_b.files.map((f) => [keyOf(f), f]));
  return c.only_a.files.flatMap((a) => (others.has(keyOf(a)) ? [{ a, b: others.get(keyOf(a))! }] : []));
}

function Group<T extends Sight>({ title, name, c, row }: { title: string; name: Group; c: Comparison; row: (thing: T) => ComponentChildren }) {
  const [a, b] = [c.only_a[name] as unknown as T[], c.only_b[name] as unknown as T[]];
  return (
    <section class="part-of-page">
      <h2>{title} <span class="h-note">{count(c.both[name])} in both</span></h2>
      {a.length + b.length === 0 ? <p class="muted">No difference.</p> : (
        <div class="versus"><Side title="Only in the first" run={c.a.run} list={a} row={row} /><Side title="Only in the second" run={c.b.run} list={b} row={row} /></div>
      )}
    </section>
  );
}

function Side<T extends Sight>({ title, run, list, row }: { title: string; run: string; list: T[]; row: (thing: T) => ComponentChildren }) {
  const [all, setAll] = useState(false);
  return (
    <div class="side">
      <h3>{title}<span class="count">{count(list.length)}</span></h3>
      <ul class="plain-list">{list.slice(0, all ? 1000 : 50).map((x) => <li><a class="seq" href={toRecord(run, x.seq, "record")}>#{x.seq}</a> {row(x)}</li>)}</ul>
      {list.length > 50 && !all && <button type="button" class="link" onClick={() => setAll(true)}>Show all {count(list.length)}</button>}
    </div>
  );
}

function Differ({ c, list }: { c: Comparison; list: { a: FileTrait; b: FileTrait }[] }) {
  return (
    <section class="part-of-page">
      <h2>Files with another content<span class="count">{count(list.length)}</span></h2>
      <table class="plain-table">
        <thead><tr><th scope="col">Path</th><th scope="col">First</th><th scope="col">Second</th></tr></thead>
        <tbody>{list.slice(0, 500).map(({ a, b }) => <tr><th scope="row"><Words text={a.path} limit={200} /></th><td><Content run={c.a.run} f={a} /></td><td><Content run={c.b.run} f={b} /></td></tr>)}</tbody>
      </table>
    </section>
  );
}

function Content({ run, f }: { run: string; f: FileTrait }) {
  return <>{f.deleted ? <Badge tone="warn">deleted</Badge> : <><Hash value={f.sha256} /> <span class="num">{bytes(f.size)}</span></>} <a class="seq" href={toRecord(run, f.seq, "record")}>#{f.seq}</a></>;
}
