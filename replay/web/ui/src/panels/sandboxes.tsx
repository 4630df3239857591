import { useRef, useState } from "preact/hooks";
import { del, get, post, Problem, useGet } from "../api";
import { Badge, Time, type Tone, Words } from "../components/basic";
import { Empty, ErrorBox, Loading } from "../components/boxes";
import { to } from "../router";
import { bytes, count, flat, plural } from "../text";
import { clock, parse, whole } from "../time";
import { useCell } from "../cell";
import * as prefs from "../prefs";
import type { Health, Quotas, Sandbox } from "../types";
import { Page, RunLink } from "./pages";
import { usePolled } from "./polled";
import { PortOpener } from "./ports";
import { Queue, Uses, Wide } from "./quotas";
import { can, Choice, FilterField } from "./shared";

/** How many sandboxes are listed at most. */
const most = 200;

type Which = "living" | "all";

/** The sandboxes of the tenant, the starts that wait, and quotas. */
export default function SandboxesScreen(_: { params: URLSearchParams }) {
  const health = useGet<Health>("/health");
  const here = Boolean(health.data?.sandboxes);
  const polled = usePolled(read, here);
  return (
    <Page title="Sandboxes" lead="Sandboxes that programs have created through the API, the starts that wait for their turn, and what is in use of quotas. Read every 5 s while this page is visible.">
      {health.error && <ErrorBox error={health.error} retry={health.reload} />}
      {health.data && !here && <Empty title="This server has no sandboxes">Programs can create them where <code>custody serve</code> has <code>--socket</code>.</Empty>}
      {polled.error && <ErrorBox error={polled.error} retry={polled.again} />}
      {here && !polled.data && !polled.error && <Loading what="Reading the sandboxes" />}
      {polled.data && (
        <>
          <List sandboxes={polled.data.sandboxes} now={parse(polled.data.quotas.time)} changed={polled.again} />
          <Queue quotas={polled.data.quotas} now={parse(polled.data.quotas.time)} />
          <Uses quotas={polled.data.quotas} />
        </>
      )}
    </Page>
  );
}

async function read(signal: AbortSignal): Promise<{ sandboxes: Sandbox[]; quotas: Quotas }> {
  const [list, quotas] = await Promise.all([get<{ sandboxes: Sandbox[] }>("/sandboxes", {}, signal), get<Quotas>("/quotas", {}, signal)]);
  return { sandboxes: list.sandboxes, quotas };
}

function List({ sandboxes, now, changed }: { sandboxes: Sandbox[]; now: number; changed: () => void }) {
  const [text, setText] = useState("");
  const [which, setWhich] = useState<Which>("living");
  const [by, setBy] = useState(3600);
  const [forks, setForks] = useState(1);
  const operates = can("operator");
  const act = useActions(changed);
  const needle = text.trim().toLowerCase();
  const found = sandboxes.filter((s) => (which === "all" || s.state !== "ended") && (!needle || words(s).some((w) => flat(w).toLowerCase().includes(needle)))).reverse();
  const states = ["live", "queued", "paused", "ended"] as const;
  return (
    <>
      <div class="search-form">
        <FilterField label="Filter the sandboxes" placeholder="ID, project, session, creator, metadata" value={text} set={setText} />
        <Choice name="Which" value={which} set={setWhich} options={[["living", "not ended"], ["all", "all"]]} />
        {operates && (
          <label>Fork into <select value={forks} onChange={(e) => setForks(Number(e.currentTarget.value))}>{[1, 2, 3, 5, 10].map((n) => <option key={n} value={n}>{n}</option>)}</select></label>
        )}
        {operates && (
          <label>Extend by <select value={by} onChange={(e) => setBy(Number(e.currentTarget.value))}><option value={900}>15 min</option><option value={3600}>1 h</option><option value={28800}>8 h</option></select></label>
        )}
        <span class="muted" role="status" aria-live="polite">{states.map((state) => `${count(sandboxes.filter((s) => s.state === state).length)} ${state}`).join(", ")}</span>
      </div>
      {act.error && <ErrorBox error={act.error} />}
      <p class="done" role="status" aria-live="polite" tabIndex={-1} ref={act.status}>{act.done}</p>
      {found.length === 0 ? <Empty title={sandboxes.length ? "No sandbox matches" : "There are no sandboxes"}>{sandboxes.length ? "Remove a filter to see more." : "Programs create them through the API."}</Empty> : (
        <Wide label="Sandboxes">
          <thead><tr>
            <th scope="col">Sandbox</th><th scope="col">State</th><th scope="col">Project</th><th scope="col">Session</th><th scope="col">Tier</th><th scope="col">Created by</th><th scope="col">Metadata</th>
            <th scope="col" class="right">Age</th><th scope="col">Ends</th><th scope="col">Idle limit</th><th scope="col"><span class="sr">Actions</span></th>
          </tr></thead>
          <tbody>{found.slice(0, most).map((s) => <Row key={s.id} s={s} now={now} by={by} forks={forks} act={operates ? act : undefined} />)}</tbody>
        </Wide>
      )}
      {found.length > most && <p class="muted">The newest {count(most)} of {count(found.length)}. Filter to see others.</p>}
    </>
  );
}

const words = (s: Sandbox) => [s.id, s.state, s.project, s.session ?? "", s.caller, s.tier ?? "", ...Object.entries(s.metadata).flat()];

/** Whether a sandbox has a stored state in place of a machine. */
const rests = (s: Sandbox) => s.state === "paused" || s.state === "archived";

const tones: Record<Sandbox["state"], Tone> = { promised: "plain", queued: "warn", starting: "busy", live: "ok", pausing: "busy", paused: "plain", archived: "plain", ending: "busy", ended: "plain" };

function Row({ s, now, by, forks, act }: { s: Sandbox; now: number; by: number; forks: number; act: Actions | undefined }) {
  const over = s.state === "ended";
  const metadata = Object.entries(s.metadata).map(([k, v]) => `${k}=${v}`).join(", ");
  return (
    <tr>
      <th scope="row">{s.runs.length > 0 ? <RunLink run={s.id} /> : <Words text={s.id} limit={60} />}{s.runs.length > 1 && <div class="muted">latest of {count(s.runs.length)} runs: <RunLink run={s.runs[s.runs.length - 1]!} /></div>}</th>
      <td><Badge tone={tones[s.state] ?? "plain"}>{flat(s.state)}</Badge>{rests(s) && s.paused && <div class="muted">for {whole(now - parse(s.paused))}, {bytes(s.stored_bytes)}{s.files_only && " of files"}</div>}{rests(s) && s.files_only && <div><Words text={s.files_only} mono={false} limit={200} /></div>}{s.running > 0 && <div class="muted">{plural(s.running, "process", "processes")}</div>}{s.error && <div><Words text={s.error} mono={false} limit={200} /></div>}</td>
      <td>{s.project ? <Words text={s.project} mono={false} limit={60} /> : <span class="muted">–</span>}</td>
      <td>{s.session ? <Words text={s.session} limit={60} /> : <span class="muted">–</span>}</td>
      <td>{s.tier ? flat(s.tier) : <span class="muted">–</span>}</td>
      <td><Words text={s.caller} mono={false} limit={60} />{can("auditor") && <div><a href={to(["access"], { about: s.id })} aria-label={`Accesses to ${s.id}`}>accesses</a></div>}</td>
      <td>{metadata ? <Words text={metadata} limit={120} /> : <span class="muted">–</span>}</td>
      <td class="right num">{whole(now - parse(s.created))}</td>
      <td>{over ? <span class="muted">–</span> : <><Time at={s.expires} digits={0} /> <span class="muted num">in {whole(parse(s.expires) - now)}</span></>}</td>
      <td>{s.idle_until ? <span class="num">in {whole(parse(s.idle_until) - now)}</span> : <span class="muted">{s.state === "live" ? "in use" : "–"}</span>}</td>
      <td class="tools">{act && !over && s.state !== "ending" && <Buttons s={s} now={now} by={by} forks={forks} act={act} />}</td>
    </tr>
  );
}

// late is how much later than the list the request to extend can come, in milliseconds: the service refuses one beyond the latest time.
const late = 15_000;

function Buttons({ s, now, by, forks, act }: { s: Sandbox; now: number; by: number; forks: number; act: Actions }) {
  const zone = useCell(prefs.zone);
  const [expires, latest] = [parse(s.expires), parse(s.latest) - late];
  const until = Math.min(expires + by * 1000, latest);
  const longest = latest - expires < 1000;
  const sure = (what: Act) => act.sure === `${what} ${s.id}`;
  const busy = act.busy[s.id];
  if (busy) return <button type="button" aria-disabled="true">{doing[busy]}…</button>;
  const button = (what: Act, name: string, question: string, carryOut: () => void) => (
    <><button type="button" aria-label={sure(what) ? undefined : `${name} ${s.id}`} onBlur={act.reset} onClick={carryOut}>{sure(what) ? `Sure? ${question}` : name}</button>{" "}</>
  );
  return (
    <>
      {!rests(s) && (
        <><button type="button" aria-disabled={longest} title={longest ? "It lives as long as its project allows" : undefined} aria-label={sure("extend") ? undefined : `Extend ${s.id}`}
          onBlur={act.reset} onClick={() => !longest && act.extend(s, Math.floor((until - now) / 1000))}>{sure("extend") ? `Sure? It ends at ${clock(until, zone, 0)}` : "Extend"}</button>{" "}</>
      )}
      {s.state === "live" && button("pause", "Pause", "Its connections end", () => act.pause(s))}
      {rests(s) && button("resume", "Resume", s.files_only ? "Its files are there again" : "Its processes continue", () => act.resume(s))}
      {(s.state === "live" || s.state === "paused") && button("fork", "Fork", `It makes ${plural(forks, "sandbox", "sandboxes")}`, () => act.fork(s, forks))}
      {button("stop", "Stop", rests(s) ? "Its state is deleted" : "Its processes end", () => act.stop(s))}
      {s.state === "live" && <PortOpener sandbox={s.id} />}
    </>
  );
}

type Act = "extend" | "stop" | "pause" | "resume" | "fork";

/** What the button of a sandbox says while the server carries out an action. */
const doing: Record<Act, string> = { extend: "Extending", stop: "Stopping", pause: "Pausing", resume: "Resuming", fork: "Forking" };

interface Actions {
  sure: string; // what has been asked for once
  busy: Record<string, Act | undefined>; // what is being carried out, by sandbox
  pause: (s: Sandbox) => void;
  resume: (s: Sandbox) => void;
  fork: (s: Sandbox, n: number) => void;
  extend: (s: Sandbox, seconds: number) => void;
  stop: (s: Sandbox) => void;
  reset: () => void;
}

/** What operators can do. Each button needs a second click. */
function useActions(changed: () => void) {
  const [sure, setSure] = useState("");
  const [busy, setBusy] = useState<Actions["busy"]>({});
  const [done, setDone] = useState("");
  const [error, setError] = useState<Problem | null>(null);
  const status = useRef<HTMLParagraphElement>(null);
  const act = async (what: Act, s: Sandbox, carryOut: () => Promise<string>) => {
    if (sure !== `${what} ${s.id}`) return setSure(`${what} ${s.id}`);
    setSure("");
    try {
      setDone(await carryOut());
      setError(null);
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
    changed();
  };
  const slow = (what: Act, s: Sandbox, carryOut: (at: string) => Promise<string>) => void act(what, s, async () => {
    setBusy((all) => ({ ...all, [s.id]: what }));
    try {
      return await carryOut(`/sandboxes/${encodeURIComponent(s.id)}`);
    } finally {
      setBusy((all) => ({ ...all, [s.id]: undefined }));
      status.current?.focus(); // the button goes away
    }
  });
  const zone = prefs.zone.get();
  return {
    sure, busy, done, error, status, reset: () => setSure(""),
    extend: (s: Sandbox, seconds: number) => void act("extend", s, async () => {
      const { expires } = await post<Sandbox>(`/sandboxes/${encodeURIComponent(s.id)}/extend`, { seconds });
      return `${s.id} ends at ${clock(parse(expires), zone, 0)}.`;
    }),
    stop: (s: Sandbox) => slow("stop", s, async (at) => {
      await del(at);
      return `${s.id} has ended, and its record is closed.`;
    }),
    pause: (s: Sandbox) => slow("pause", s, async (at) => {
      const { files_only: files, running } = await post<Sandbox>(`${at}/pause`);
      return files ? `${s.id} is paused with its files only, and its processes have ended: ${flat(files)}` : `${s.id} is paused. Its ${plural(running, "process continues", "processes continue")} when it is used.`;
    }),
    resume: (s: Sandbox) => slow("resume", s, async (at) => {
      await post<Sandbox>(`${at}/resume`);
      return `${s.id} is live in another run.`;
    }),
    fork: (s: Sandbox, n: number) => slow("fork", s, async (at) => {
      const { sandboxes } = await post<{ sandboxes: Sandbox[] }>(`${at}/fork`, { count: n });
      return `${s.id} was forked into ${sandboxes.map((fork) => fork.id).join(", ")}.`;
    }),
  };
}
