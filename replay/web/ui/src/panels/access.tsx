import { useState } from "preact/hooks";
import { Badge, Time, Words } from "../components/basic";
import { Empty } from "../components/boxes";
import { go, to } from "../router";
import { Marked } from "../screens/words";
import { count, decode, flat } from "../text";
import type { Access, Mark } from "../types";
import { Days, MoreOf, Page, RunLink, spanOf } from "./pages";
import { usePages } from "./paging";
import { can, Choice, Needs, VerdictBadge } from "./shared";

type Look = Access & { run: string; seq: number; time: string; verification?: Mark };
type Which = "all" | "deny";

/** Who looked at the record, and who was refused. */
export default function AccessScreen({ params }: { params: URLSearchParams }) {
  const [from, until] = [params.get("from") ?? "", params.get("until") ?? ""];
  const about = params.get("about") ?? "";
  const [which, setWhich] = useState<Which>("all");
  const may = can("auditor");
  const pages = usePages<Look>(may ? "/access" : null, { ...spanOf(from, until), about, limit: 200 }, (a: { access: Look[]; next?: string; partial: boolean }) => ({ rows: a.access, next: a.next, partial: a.partial }));
  const rows = which === "deny" ? pages.rows.filter((l) => l.verdict === "deny") : pages.rows;
  return (
    <Page title="Access log" lead="Every view, search, export and report through this host's API, recorded before anything is shown, and every refused attempt. Newest first.">
      {!may ? <Needs role="auditor" what="The access log" /> : (
        <>
          <form class="search-form" onSubmit={(e) => e.preventDefault()}>
            <Days from={from} until={until} set={(days) => go(to(["access"], { about, from, until, ...days }), true)} />
            <Choice name="Which" value={which} set={setWhich} options={[["all", "all"], ["deny", "refused only"]]} />
            {about && <span>about <Words text={about} limit={60} /> <a href={to(["access"], { from, until })}>about everything</a></span>}
            <button type="button" onClick={pages.reload}>Look again</button>
          </form>
          {rows.length > 0 && <List rows={rows} />}
          {!pages.loading && !pages.error && rows.length === 0 && <Empty title="No entries">{which === "deny" ? "No refused attempts" : "No accesses"} in that time among the entries loaded here.</Empty>}
          <MoreOf pages={pages} what="entries" />
        </>
      )}
    </Page>
  );
}

function List({ rows }: { rows: Look[] }) {
  return (
    <table class="wide-table">
      <thead><tr><th scope="col">Time</th><th scope="col">Who</th><th scope="col">Did</th><th scope="col">Run</th><th scope="col">Query</th><th scope="col">Verdict</th><th scope="col">From</th></tr></thead>
      <tbody>{rows.map((l) => (
        <tr key={`${l.run} ${l.seq}`} class={l.verdict === "deny" ? "denied-row" : undefined}>
          <td><Time at={l.time} date /></td>
          <th scope="row"><Marked mark={l.verification} />{l.who ? <Words text={l.who} mono={false} limit={60} /> : <span class="muted">unknown</span>} <span class="muted">{flat([l.role, l.via].filter(Boolean).join(", "))}</span></th>
          <td><Badge tone="plain">{flat(l.action)}</Badge> <span class="muted mono">{flat(l.route)}</span></td>
          <td>{l.about === undefined ? "–" : /^[a-z]-[0-9a-z]{26}$/.test(decode(l.about)) ? <RunLink run={decode(l.about)} /> : <Words text={l.about} limit={60} />}</td>
          <td>{l.query ? <Words text={l.query} limit={120} /> : "–"}</td>
          <td><VerdictBadge verdict={l.verdict} />{l.status ? <span class="num"> {l.status}</span> : null}{l.reason && <div class="muted">{flat(l.reason)}</div>}{l.count && l.count > 1 ? <span class="muted num"> ×{count(l.count)}</span> : null}</td>
          <td class="mono">{flat(l.remote)}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}
