import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Time, Words } from "../components/basic";
import { Bundle } from "../components/bundle";
import { Empty, Loaded } from "../components/boxes";
import type { RunStore } from "../runstore";
import { flat } from "../text";
import type { Finding, Items } from "../types";
import { disagreements, findingWords } from "../kinds";
import { SearchFor, Seq } from "./shared";

/** What a reviewer should look at: recorded when it happened, or found by the model in what guest and host say. */
export default function FindingsPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<Finding>>(run.path("findings"), {}, version);
  return <div class="panel findings"><Loaded got={got} what="Gathering the findings">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

function Shown({ run, all }: { run: RunStore; all: Finding[] }) {
  if (all.length === 0) {
    return <Empty title="Nothing was found">No rule was raised, and the observations of guest and host agree. This does not mean that nothing happened: check denials and gaps.</Empty>;
  }
  const apart = all.filter((f) => disagreements.has(f.rule));
  const others = all.filter((f) => !disagreements.has(f.rule));
  return (
    <>
      {others.map((f) => <Card key={`${f.rule} ${f.seq} ${f.evidence[0]}`} run={run} f={f} />)}
      {apart.length > 0 && (
        <section class="part-of-panel">
          <h2>Guest and host disagree<span class="count">{apart.length}</span></h2>
          <p class="muted">The guest's sensor is software inside the VM: its reports are claims. All of the VM's traffic passes the host. Where the two disagree, the sensor lost events, or a process in the VM hid or forged some.</p>
          {apart.slice(0, 500).map((f) => <Card key={`${f.rule} ${f.seq} ${f.evidence[0]}`} run={run} f={f} />)}
        </section>
      )}
    </>
  );
}

function Card({ run, f }: { run: RunStore; f: Finding }) {
  const seqs = [f.seq, ...f.evidence].filter((seq) => seq > 0);
  const [from, to] = seqs.reduce(([low, high], seq) => [Math.min(low, seq), Math.max(high, seq)], [Infinity, 0]);
  return (
    <article class="finding-card">
      <header>
        <Badge tone={disagreements.has(f.rule) ? "warn" : "bad"}>{flat(f.rule)}</Badge> <Time at={f.time} />
        {f.step && <span class="muted">step <Words text={f.step} limit={40} mono={false} /></span>}
        <span class="spring" />
        {f.derived ? <span class="muted" title="Derived from the records below">derived from the records</span> : <>recorded as <Seq run={run} seq={f.seq} time={f.time} /></>}
      </header>
      <p><Words text={f.detail} limit={1500} mono={false} /></p>
      {findingWords.has(f.rule) && <p class="muted">{findingWords.get(f.rule)}</p>}
      <p class="evidence">
        {f.evidence.length > 0 && <span>Shown by {f.evidence.slice(0, 20).map((seq) => <><Seq run={run} seq={seq} label={`Evidence: record ${seq}`} /> </>)}{f.evidence.length > 20 && `and ${f.evidence.length - 20} more`}</span>}
        {f.action && <span>done: <strong>{flat(f.action)}</strong></span>}
        {f.secret && <span>credential <Words text={f.secret} /></span>}
        <SearchFor by="rule" value={f.rule}>this rule in all runs</SearchFor>
        {to > 0 && <Bundle run={run} from={from} to={to}>{from === to ? `Bundle of record ${from}` : `Bundle of records ${from} to ${to}`}</Bundle>}
      </p>
    </article>
  );
}
