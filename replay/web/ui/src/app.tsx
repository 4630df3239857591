import { useEffect, useState } from "preact/hooks";
import { get, Problem, session, tenant, trouble } from "./api";
import { useCell } from "./cell";
import { ErrorBox, Loading } from "./components/boxes";
import { Lazy } from "./components/lazy";
import { screens } from "./panels";
import type { Screen } from "./registry";
import { place } from "./router";
import { Bar } from "./screens/bar";
import { Login, once } from "./screens/login";
import { Runs } from "./screens/runs";
import { enter } from "./session";
import type { Session } from "./types";

// The run's page is most of the code, and the list of runs does not need it.
const run: Screen["load"] = () => import("./screens/run");

/** The whole page: who is there, and the screen that the address names. */
export function App() {
  const who = useCell(session);
  const [error, setError] = useState<Problem | null>(null);
  useEffect(() => {
    const timer = setTimeout(() => void run().catch(() => undefined), 1000); // it is what is opened next
    begin().catch((e: unknown) => setError(e instanceof Problem ? e : new Problem({ title: "The page could not start", detail: String(e) })));
    const link = () => void once(); // a link that is opened where the page is open already
    addEventListener("hashchange", link);
    return () => {
      clearTimeout(timer);
      removeEventListener("hashchange", link);
    };
  }, []);
  if (error) return <main class="center"><ErrorBox error={error} /></main>;
  if (who === undefined) return <main class="center"><Trouble /><Loading what="Opening" /></main>;
  if (who === null) return <Login />;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <Bar screens={screens} />
      <Trouble />
      <main id="main" tabIndex={-1}><Shown /></main>
    </>
  );
}

/** Signs in with the one-time token of the address, if there is one, and asks who is there. */
async function begin(): Promise<void> {
  await once();
  if (session.get() !== undefined) return;
  try {
    enter(await get<Session>("/session"));
  } catch (e) {
    if (!(e instanceof Problem) || ![400, 401, 403].includes(e.status)) throw e;
    session.set(null);
  }
}

/** What cannot be had at the moment, while it is tried again. */
function Trouble() {
  const what = useCell(trouble);
  if (!what) return <div role="status" aria-live="polite" />;
  return (
    <div class="trouble" role="status" aria-live="polite">
      <strong>{what.text}</strong> {what.hint} <span class="muted">Trying again.</span>
    </div>
  );
}

function Shown() {
  const { path, params } = useCell(place);
  useCell(tenant);
  const [first = "runs", name] = path;
  if (first === "runs" && !name) return <Runs params={params} />;
  if (first === "runs") return <Lazy key={`run ${tenant.get()} ${name}`} load={run} props={{ params }} />;
  const screen = screens.find((s) => s.route === first);
  if (screen) return <Lazy key={`${tenant.get()} ${first}`} load={screen.load} props={{ params }} />;
  return <ErrorBox error={new Problem({ title: "There is no such page", detail: "The address names no screen.", hint: "Begin with the list of runs." })} />;
}
