import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem, useGet } from "../api";
import { useCell } from "../cell";
import { ErrorBox, Loaded, Loading } from "../components/boxes";
import { Tabs } from "../components/tabs";
import { panels } from "../panels";
import type { Panel } from "../registry";
import { place } from "../router";
import { RunStore } from "../runstore";
import type { RunDetail } from "../types";
import { runPath } from "../api";

/** A run: its header, its lanes, its records and the panels. */
export default function Run({ params }: { params: URLSearchParams }) {
  const name = useCell(place).path[1] ?? "";
  const got = useGet<RunDetail>(runPath(name));
  return <Loaded got={got} what="Opening the run">{(detail) => <Page key={detail.run} detail={detail} params={params} />}</Loaded>;
}

function Page({ detail, params }: { detail: RunDetail; params: URLSearchParams }) {
  const [run] = useState(() => new RunStore(detail, params));
  useEffect(() => () => run.close(), [run]);
  return <section class="run"><h1>{run.name}</h1><Panels run={run} /></section>;
}

/** The tabs beside the records. */
export function Panels({ run }: { run: RunStore }) {
  const shown = useCell(run.panel) || panels[0]?.id || "";
  useCell(run.detail);
  const panel = panels.find((p) => p.id === shown) ?? panels[0];
  if (!panel) return null;
  return (
    <Tabs name="What to look at" tabs={panels.map((p) => ({ id: p.id, title: p.title, badge: p.badge?.(run) }))} shown={panel.id}
      show={(id) => run.panel.set(id)}>
      <Lazy key={panel.id} panel={panel} run={run} />
    </Tabs>
  );
}

function Lazy({ panel, run }: { panel: Panel; run: RunStore }) {
  const [Shown, setShown] = useState<ComponentType<{ run: RunStore }> | null>(null);
  const [error, setError] = useState<Problem | null>(null);
  useEffect(() => {
    panel.load().then(
      (module) => setShown(() => module.default),
      () => setError(new Problem({ title: "A part of the page could not be loaded", hint: "Is the server still there, or another version? Reload the page." })),
    );
  }, [panel]);
  if (error) return <ErrorBox error={error} />;
  return Shown ? <Shown run={run} /> : <Loading />;
}
