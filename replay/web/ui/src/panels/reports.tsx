import { useState } from "preact/hooks";
import { href, useGet } from "../api";
import { Badge, Time, Words } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import { flat, plural } from "../text";
import type { RunItem, RunPage } from "../types";
import { Days, Page, spanOf } from "./pages";
import { can, Choice, Command, Needs } from "./shared";

const frameworks: [id: string, title: string, about: string][] = [
  ["soc2", "SOC 2", "Trust Services Criteria: monitoring, logical access, system operations"],
  ["nist80053", "NIST SP 800-53", "audit and accountability, access control, system protection and integrity"],
  ["iso27001", "ISO/IEC 27001", "Annex A 8.15 to 8.17: logging, monitoring, clocks"],
  ["pci", "PCI DSS", "requirement 10: log and monitor all access"],
  ["gdpr", "GDPR", "records, protection by design, security, notification"],
  ["euaiact", "EU AI Act", "record-keeping of AI systems"],
];

/** Reports of evidence toward the controls of a framework. */
export default function ReportsScreen({ params }: { params: URLSearchParams }) {
  const [framework, setFramework] = useState(params.get("framework") ?? "soc2");
  const [by, setBy] = useState<"runs" | "days">(params.get("from") ? "days" : "runs");
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set(params.get("run")?.split(",").filter(Boolean)));
  const [days, setDays] = useState({ from: params.get("from")?.slice(0, 10) ?? "", until: "" });
  const query = { framework, ...(by === "runs" ? { run: [...chosen].join(",") } : spanOf(days.from, days.until)) };
  const ready = by === "runs" ? chosen.size > 0 : days.from !== "" || days.until !== "";
  return (
    <Page title="Reports" lead="Evidence from the record for the controls of a framework. A report never states “compliant”: it lists the controls that the evidence supports or contradicts, and its limits.">
      {!can("auditor") ? <Needs role="auditor" what="A report" /> : (
        <>
          <fieldset class="frameworks"><legend>Framework</legend>
            {frameworks.map(([id, title, about]) => (
              <label class={id === framework ? "on" : undefined}><input type="radio" name="framework" value={id} checked={id === framework} onChange={() => setFramework(id)} />
                <span><strong>{title}</strong><br /><span class="muted">{about}</span></span></label>
            ))}
          </fieldset>
          <div class="controls"><Choice name="Scope" value={by} set={setBy} options={[["runs", "runs that I choose"], ["days", "all runs of a time"]]} /></div>
          {by === "days" ? <div class="search-form"><Days {...days} set={(d) => setDays({ ...days, ...d })} /></div> : <Runs chosen={chosen} set={setChosen} />}
          <div class="take" role="group" aria-label="Download the report">
            {ready ? (
              <>
                <a class="button primary" href={href("/reports", { ...query, format: "html" })} download>HTML, prints to PDF</a>
                <a class="button" href={href("/reports", { ...query, format: "json" })} download>JSON</a>
                <a class="button" href={href("/reports", { ...query, format: "bundle" })} download>Bundle: report, records and proofs, signed</a>
              </>
            ) : <p class="muted">Choose {by === "runs" ? "at least one run" : "a day"} first.</p>}
          </div>
          <p class="muted small">Runs without a recent verification are verified first, which can take a minute. Each report is an entry in the access log.</p>
          {ready && <Command line={`custody report --framework ${framework} ${by === "runs" ? [...chosen].join(" ") : `${days.from && `--from ${days.from}`} ${days.until && `--to ${days.until}`}`.trim()}`} />}
        </>
      )}
    </Page>
  );
}

/** The newest runs, with a box each. */
export function Runs({ chosen, set }: { chosen: ReadonlySet<string>; set: (chosen: ReadonlySet<string>) => void }) {
  const got = useGet<RunPage>("/runs", { limit: 200 });
  return (
    <Loaded got={got} what="Fetching the runs">{(d) => {
      if (d.runs.length === 0) return <Empty title="There are no runs yet">Start one with <code>custody run</code>.</Empty>;
      const toggle = (run: string) => {
        const next = new Set(chosen);
        if (!next.delete(run)) next.add(run);
        set(next);
      };
      return <Boxes runs={d.runs} more={Boolean(d.next)} chosen={chosen} toggle={toggle} all={() => set(chosen.size ? new Set() : new Set(d.runs.map((r) => r.run)))} />;
    }}</Loaded>
  );
}

function Boxes({ runs, more, chosen, toggle, all }: { runs: RunItem[]; more: boolean; chosen: ReadonlySet<string>; toggle: (run: string) => void; all: () => void }) {
  return (
    <div class="boxes">
      <table class="wide-table">
        <thead><tr><th scope="col"><input type="checkbox" aria-label="All of these runs" checked={chosen.size >= runs.length} onChange={all} /></th><th scope="col">Run</th><th scope="col">Began</th><th scope="col">Project</th><th scope="col">Status</th><th scope="col">Findings</th></tr></thead>
        <tbody>{runs.map((r) => (
          <tr key={r.run}>
            <td><input type="checkbox" aria-label={`Run ${r.run}`} checked={chosen.has(r.run)} onChange={() => toggle(r.run)} /></td>
            <th scope="row" class="mono">{r.run}</th><td><Time at={r.start} date digits={0} /></td><td><Words text={r.project} mono={false} limit={60} /></td><td>{flat(r.status)}</td>
            <td>{r.findings ? <Badge tone="warn">{plural(r.findings, "finding")}</Badge> : <span class="muted">none</span>}</td>
          </tr>
        ))}</tbody>
      </table>
      {more && <p class="muted">The newest {runs.length}. For older ones choose a time.</p>}
    </div>
  );
}
