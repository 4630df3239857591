import { useState } from "preact/hooks";
import { Badge, Time, Words } from "../components/basic";
import { Empty } from "../components/boxes";
import { go, to, toRecord } from "../router";
import { Marked } from "../screens/words";
import { flat } from "../text";
import type { Mark } from "../types";
import { Days, MoreOf, Page, RunLink, spanOf } from "./pages";
import { usePages } from "./paging";
import { disagreements, findingWords } from "../kinds";

interface Found {
  run: string;
  seq: number;
  time: string;
  step?: string;
  rule: string;
  detail: string;
  evidence?: number;
  secret?: string;
  action?: string;
  verification?: Mark;
}

/** The recorded findings of all runs, newest first. */
export default function FindingsScreen({ params }: { params: URLSearchParams }) {
  const [rule, from, until] = [params.get("rule") ?? "", params.get("from") ?? "", params.get("until") ?? ""];
  const pages = usePages<Found>("/findings", { rule, ...spanOf(from, until), limit: 100 }, (a: { findings: Found[]; next?: string; partial: boolean }) => ({ rows: a.findings, next: a.next, partial: a.partial }));
  const rules = [...new Set(pages.rows.map((f) => f.rule))].sort();
  return (
    <Page title="Findings" lead="Observations that need review, over all runs, newest first. Disagreements of a live run's records are on the run's page until it ends.">
      <Form key={params.toString()} rule={rule} from={from} until={until} known={rules} />
      {pages.rows.length > 0 && <List rows={pages.rows} />}
      {!pages.loading && !pages.error && pages.rows.length === 0 && !pages.more && <Empty title="No findings">{rule || from || until ? "None of that rule in that time. Remove the filter to see all." : "No run has raised any."}</Empty>}
      <MoreOf pages={pages} what="findings" />
    </Page>
  );
}

function Form({ known, ...was }: { rule: string; from: string; until: string; known: string[] }) {
  const [now, setNow] = useState(was);
  const submit = (e: Event) => {
    e.preventDefault();
    go(to(["findings"], { ...now, rule: now.rule.trim() }));
  };
  return (
    <form class="search-form" onSubmit={submit} role="search">
      <label>Rule <input type="search" list="finding-rules" value={now.rule} placeholder="any" onInput={(e) => setNow({ ...now, rule: e.currentTarget.value })} spellcheck={false} autocomplete="off" /></label>
      <datalist id="finding-rules">{[...new Set([...known, ...Object.keys(findingWords)])].map((r) => <option value={r} />)}</datalist>
      <Days from={now.from} until={now.until} set={(days) => setNow({ ...now, ...days })} />
      <button type="submit" class="primary">Filter</button>
    </form>
  );
}

function List({ rows }: { rows: Found[] }) {
  return (
    <table class="wide-table">
      <thead><tr><th scope="col">Time</th><th scope="col">Rule</th><th scope="col">Run</th><th scope="col">What was found</th><th scope="col">Evidence</th><th scope="col">Done</th></tr></thead>
      <tbody>{rows.map((f) => (
        <tr key={`${f.run} ${f.seq}`}>
          <td><Time at={f.time} date /></td>
          <td><Badge tone={disagreements.has(f.rule) ? "warn" : "bad"} title={findingWords.get(f.rule)}>{flat(f.rule)}</Badge></td>
          <td><RunLink run={f.run} /></td>
          <th scope="row"><Marked mark={f.verification} /><Words text={f.detail} limit={300} mono={false} />{f.secret && <span class="muted"> credential <Words text={f.secret} /></span>}</th>
          <td><a class="seq" href={toRecord(f.run, f.seq, "record")}>#{f.seq}</a>{f.evidence ? <> <a class="seq" href={toRecord(f.run, f.evidence, "record")} aria-label={`Evidence: record ${f.evidence}`}>#{f.evidence}</a></> : null}</td>
          <td>{f.action ? <strong>{flat(f.action)}</strong> : <span class="muted">nothing</span>}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}
