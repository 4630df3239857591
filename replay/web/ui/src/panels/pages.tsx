import type { ComponentChildren } from "preact";
import { Badge, Words } from "../components/basic";
import { ErrorBox, Loading } from "../components/boxes";
import { to } from "../router";
import { count } from "../text";
import type { Pages } from "./paging";

/** A screen with its heading, and a sentence about what it is for. */
export function Page({ title, lead, children }: { title: string; lead?: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="page">
      <header class="page-head"><h1>{title}</h1>{lead && <p class="muted">{lead}</p>}</header>
      {children}
    </div>
  );
}

/** What stands below a list that comes page by page. */
export function MoreOf<T>({ pages, what }: { pages: Pages<T>; what: string }) {
  return (
    <div class="more-of" role="status" aria-live="polite">
      {pages.error && <ErrorBox error={pages.error} retry={pages.on} />}
      {pages.partial && !pages.loading && <p><Badge tone="warn">not all</Badge> The search ran out of time before it had looked at everything. What it found is shown; go on to look at the rest.</p>}
      {pages.loading ? <Loading what={pages.rows.length ? "Fetching more" : "Searching"} /> : !pages.error && (
        <p class="muted">{count(pages.rows.length)} {what}{pages.more ? " so far" : ""}.{" "}
          {pages.more && <button type="button" onClick={pages.on}>{pages.partial ? "Continue" : "Show more"}</button>}</p>
      )}
    </div>
  );
}

/** A link to a run's page. */
export function RunLink({ run }: { run: string }) {
  return <a class="run-link" href={to(["runs", run])}><Words text={run} limit={60} /></a>;
}

/** Days from and to, in UTC. */
export function Days({ from, until, set }: { from: string; until: string; set: (days: { from?: string; until?: string }) => void }) {
  return (
    <>
      <label>From <input type="date" value={from} max={until || undefined} onChange={(e) => set({ from: e.currentTarget.value })} /></label>
      <label>up to <input type="date" value={until} min={from || undefined} onChange={(e) => set({ until: e.currentTarget.value })} /> <span class="muted">UTC</span></label>
    </>
  );
}

/** Days as the API's from and to: the last one is part of it. */
export function spanOf(from: string, until: string): { from?: string | undefined; to?: string | undefined } {
  const day = (text: string, more: number) => {
    const ms = Date.parse(text + "T00:00:00Z");
    return Number.isNaN(ms) ? undefined : new Date(ms + more * 86_400_000).toISOString();
  };
  return { from: day(from, 0), to: day(until, 1) };
}
