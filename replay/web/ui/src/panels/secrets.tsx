import { useGet } from "../api";
import { useCell } from "../cell";
import { Badge, Fact, Facts, Hash, Time, Words } from "../components/basic";
import { Empty, Loaded } from "../components/boxes";
import type { RunStore } from "../runstore";
import { flat, plural } from "../text";
import { span } from "../time";
import type { Credential, Items } from "../types";
import { Bars, type Mark, type Stretch } from "./bars";
import { Argv, By, Figure, SearchFor, Seq } from "./shared";

/** The life of each credential: minted, promised for 60 s at a time, used, revoked. */
export default function SecretsPanel({ run }: { run: RunStore }) {
  const version = useCell(run.version);
  const got = useGet<Items<Credential>>(run.path("credentials"), {}, version);
  return <div class="panel secrets"><Loaded got={got} what="Gathering the credentials">{(d) => <Shown run={run} all={d.items} />}</Loaded></div>;
}

function Shown({ run, all }: { run: RunStore; all: Credential[] }) {
  const detail = useCell(run.detail);
  if (all.length === 0) return <Empty title="No credential was handed out">The steps of this run name no secrets, so the broker gave none.</Empty>;
  const named = all.filter((c) => c.name !== "");
  const scale = scaleOf(run, all);
  return (
    <>
      <div class="figures">
        <Figure name="credentials">{named.length}</Figure>
        <Figure name="alive now" tone={all.some((c) => !c.end && detail.live) ? "info" : "plain"}>{all.filter((c) => !c.end && detail.live).length}</Figure>
        <Figure name="uses by the gateway">{all.reduce((n, c) => n + c.uses.length, 0)}</Figure>
        <Figure name="openings of files" tone={all.some((c) => c.opened_after) ? "warn" : "plain"}>{all.reduce((n, c) => n + (c.opened ?? 0), 0)}</Figure>
        <Figure name="ran out instead of being revoked" tone={all.some((c) => c.ended_by === "expire") ? "warn" : "plain"}>{all.filter((c) => c.ended_by === "expire").length}</Figure>
      </div>
      <p class="muted small">The host saw all of this but the openings of files, which the guest's sensor claims. The value itself is in no record. Each hatched bar is one promise of the broker's, 60 s at most; the solid line is how long the credential lived.</p>
      {all.map((c) => <Life key={c.seq} run={run} c={c} scale={scale} />)}
    </>
  );
}

function scaleOf(run: RunStore, all: Credential[]): { from: number; to: number } {
  const starts = all.map((c) => run.instant(c.start));
  const ends = all.flatMap((c) => [c.end ? run.instant(c.end) : run.end.get(), ...c.bars.map((b) => run.instant(b.to))]);
  return { from: Math.min(...starts), to: Math.max(...ends) };
}

function Life({ run, c, scale }: { run: RunStore; c: Credential; scale: { from: number; to: number } }) {
  const start = run.instant(c.start);
  const end = c.end ? run.instant(c.end) : run.end.get();
  const stretches: Stretch[] = [...c.bars.map((b): Stretch => ({ from: run.instant(b.from), to: run.instant(b.to), mood: "promise" })), { from: start, to: end, mood: "life", open: !c.end }];
  const marks: Mark[] = [{ at: start, mood: "mint" }, ...c.uses.map((u): Mark => ({ at: run.instant(u.time), mood: "use" }))];
  if (c.end) marks.push({ at: end, mood: "revoke" });
  const cursor = useCell(run.settled);
  if (cursor >= scale.from && cursor <= scale.to) marks.push({ at: cursor, mood: "cursor" });
  const name = c.name || "the step's own token";
  return (
    <section class="life-of">
      <h2><Words text={name} mono={Boolean(c.name)} limit={80} /> <span class="h-note">for step <Words text={c.step} limit={60} mono={false} /></span> <End c={c} />
        <span class="spring" /><span class="num muted">lived {span(end - start)}</span></h2>
      <Bars {...scale} tall stretches={stretches} marks={marks} label={`${flat(name)}: from ${run.at(start)} for ${span(end - start)}, ${plural(c.bars.length, "promise")} of the broker's, ${plural(c.uses.length, "use")}`} />
      <Facts>
        <Fact name="Minted"><Time at={c.start} /> <Seq run={run} seq={c.seq} time={c.start} /></Fact>
        <Fact name="Broker">{flat(c.broker ?? "–")}{c.via && <>, delivered as {flat(c.via)}</>}</Fact>
        <Fact name="Over">{c.end ? <><Time at={c.end} />{c.end_seq ? <> <Seq run={run} seq={c.end_seq} time={c.end} /></> : null} <span class="muted">{endWords[c.ended_by ?? ""] ?? flat(c.ended_by ?? "")}</span></> : "alive"}</Fact>
        <Fact name="Promised until"><Time at={c.expires} /> <span class="muted">{plural(Math.max(0, c.bars.length - 1), "renewal")}</span></Fact>
        {c.tag && <Fact name="Tag of the value"><code>{flat(c.tag)}</code></Fact>}
        {c.accessor_sha256 && <Fact name="Accessor, SHA-256"><Hash value={c.accessor_sha256} /></Fact>}
        {c.uses.length > 0 && <Fact name="Used by the gateway"><Uses run={run} c={c} /></Fact>}
        {c.opened !== undefined && <Fact name="Opened by"><Readers run={run} c={c} /></Fact>}
        {c.name && <Fact name="This name"><SearchFor by="secret" value={c.name} /></Fact>}
      </Facts>
    </section>
  );
}

const endWords: Record<string, string> = { revoke: "revoked at the broker", expire: "it ran out before it was revoked", run: "the run's end" };

function End({ c }: { c: Credential }) {
  if (!c.end) return <Badge tone="info">alive</Badge>;
  if (c.ended_by === "revoke") return <Badge tone="ok">revoked</Badge>;
  if (c.ended_by === "expire") return <Badge tone="warn">expired</Badge>;
  return <Badge tone="plain">ended</Badge>;
}

function Uses({ run, c }: { run: RunStore; c: Credential }) {
  return (
    <ul class="plain-list">{c.uses.slice(0, 50).map((u) => (
      <li><Seq run={run} seq={u.seq} time={u.time} /> <Time at={u.time} /> {u.host !== undefined && <>to <Words text={u.host} limit={80} /></>}{u.flow && <span class="muted"> in flow {flat(u.flow)}</span>}</li>
    ))}{c.uses.length > 50 && <li class="muted">and {c.uses.length - 50} more</li>}</ul>
  );
}

/** The processes that opened a file with the credential, and whether one did so after its end. */
function Readers({ run, c }: { run: RunStore; c: Credential }) {
  const listed = c.readers.reduce((n, r) => n + r.times, 0);
  const more = (c.opened ?? 0) - listed;
  return (
    <ul class="plain-list readers">{c.readers.map((r) => (
      <li>
        <Seq run={run} seq={r.seq} time={r.first} /> <Time at={r.first} /> <By run={run} by={r.by} />: {r.exe !== undefined && <><Words text={r.exe} limit={80} /> </>}<Argv argv={r.argv} limit={80} />
        <span class="muted"> opened {r.paths.map((p) => <><Words text={p} limit={80} /> </>)}{plural(r.times, "time")}{r.times > 1 && <>, last at <Time at={r.last} /></>}</span>
        {r.after !== undefined && <> <Badge tone="warn">{r.after === r.times ? "after its end" : `${r.after} of them after its end`}</Badge></>}
      </li>
    ))}{more > 0 && <li class="muted">and {plural(more, "opening")} by other processes</li>}</ul>
  );
}
