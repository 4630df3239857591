import type { ComponentChildren } from "preact";
import { Badge, Time, Words } from "../components/basic";
import { bytes, count, flat } from "../text";
import { parse, whole } from "../time";
import type { Quotas, QuotaUse } from "../types";

const titles: [quota: string, title: string, bytes: boolean][] = [
  ["sandboxes", "Sandboxes", false], ["cpus", "CPUs", false], ["memory", "Memory", true], ["starts_per_minute", "Starts per minute", false],
  ["llm_tokens_per_day", "LLM tokens today", false], ["disk_rate", "Disk rate", true], ["network_rate", "Network rate", true],
];

/** The name of a tenant; what belongs to none has no name. */
export const tenantName = (name: string) => flat(name) || "(none)";

/** A table that scrolls by itself where the window is narrow. */
export function Wide({ label, children }: { label: string; children: ComponentChildren }) {
  return <div class="scroll-x" role="region" aria-label={label} tabIndex={0}><table class="wide-table">{children}</table></div>;
}

/** The starts that wait, the first to arrive first. */
export function Queue({ quotas, now }: { quotas: Quotas; now: number }) {
  const waiting = quotas.tenants.reduce((n, t) => n + t.waiting, 0);
  return (
    <section class="part-of-page queue"><h2>Queue<span class="count">{count(waiting)}</span></h2>
      {quotas.queue.length === 0 ? <p class="muted">No start waits.</p> : (
        <Wide label="Queue">
          <thead><tr><th scope="col" class="right">Position</th><th scope="col">Tenant</th><th scope="col">Project</th><th scope="col">Sandbox</th><th scope="col" class="right">Has waited</th><th scope="col">For the quota</th><th scope="col">Expected start</th></tr></thead>
          <tbody>{quotas.queue.map((s) => (
            <tr key={`${s.tenant} ${s.id ?? s.queued}`}>
              <td class="right num">{s.position}</td><td>{tenantName(s.tenant)}</td><td><Words text={s.project} mono={false} limit={60} /></td>
              <th scope="row">{s.id ? <Words text={s.id} limit={60} /> : <span class="muted">another tenant's</span>}</th>
              <td class="right num">{whole(now - parse(s.queued))}</td><td>{flat(s.quota)}</td><td><Time at={s.expected} digits={0} /></td>
            </tr>
          ))}</tbody>
        </Wide>
      )}
      {waiting > quotas.queue.length && quotas.queue.length > 0 && <p class="muted">The first {count(quotas.queue.length)}.</p>}
    </section>
  );
}

/** What the tenants and their projects use of their quotas. */
export function Uses({ quotas }: { quotas: Quotas }) {
  return (
    <section class="part-of-page uses"><h2>Quotas</h2>
      <Wide label="Quotas">
        <thead><tr><th scope="col">Of</th><th scope="col">Project</th>{titles.map(([, title]) => <th scope="col" class="right">{title}</th>)}<th scope="col" class="right">Waiting</th></tr></thead>
        <tbody>
          {quotas.host && <tr key="host"><th scope="row">this host</th><td class="muted">all</td><Cells uses={quotas.host} /><td class="right num">{count(quotas.tenants.reduce((n, t) => n + t.waiting, 0))}</td></tr>}
          {quotas.tenants.flatMap((t) => [
            <tr key={`t ${t.tenant}`}><th scope="row">tenant {tenantName(t.tenant)}</th><td class="muted">all</td><Cells uses={t.quotas} /><td class="right num">{count(t.waiting)}</td></tr>,
            ...t.projects.map((p) => (
              <tr key={`p ${t.tenant} ${p.project}`}><th scope="row">tenant {tenantName(t.tenant)}</th><td><Words text={p.project} mono={false} limit={60} /></td><Cells uses={p.quotas} /><td class="right num">{count(p.waiting)}</td></tr>
            )),
          ])}
        </tbody>
      </Wide>
    </section>
  );
}

function Cells({ uses }: { uses: QuotaUse[] }) {
  return (
    <>
      {titles.map(([name, , size]) => {
        const use = uses.find((u) => u.quota === name);
        const text = (n: number) => (size ? bytes(n) : count(n)) + (name.endsWith("_rate") ? "/s" : "");
        if (!use) return <td class="right muted">–</td>;
        const full = use.used !== undefined && use.limit !== undefined && use.used >= use.limit;
        return (
          <td class="right num">
            {full && <><Badge tone="warn">full</Badge> </>}
            {[use.used === undefined ? "" : text(use.used), use.limit === undefined ? "" : `${use.used === undefined ? "at most" : "of"} ${text(use.limit)}`].filter(Boolean).join(" ")}
          </td>
        );
      })}
    </>
  );
}
