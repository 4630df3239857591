import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { runPath, useGet } from "../api";
import { Cell, useCell } from "../cell";
import { ErrorBox, Loading } from "../components/boxes";
import { Lazy } from "../components/lazy";
import { Split } from "../components/split";
import { Tabs } from "../components/tabs";
import { SeqIndex } from "../lanes/index";
import { LanesView } from "../lanes/lanes";
import { Live } from "../live";
import { panels } from "../panels";
import { FilterBar } from "../records/filterbar";
import { RecordList } from "../records/list";
import type { Filter } from "../records/source";
import { amend, place } from "../router";
import { RunStore } from "../runstore";
import type { RecordAnswer, RunDetail } from "../types";
import { Alarm, Header } from "./header";

/** A run: its header, its lanes, its records and the panels. */
export default function Run({ params }: { params: URLSearchParams }) {
  const name = useCell(place).path[1] ?? "";
  const got = useGet<RunDetail>(runPath(name));
  if (got.error) return <ErrorBox error={got.error} retry={got.reload} />;
  if (!got.data) return <Loading what="Opening the run" />;
  return <Page key={got.data.run} detail={got.data} params={params} />;
}

function Page({ detail, params }: { detail: RunDetail; params: URLSearchParams }) {
  const [run] = useState(() => new RunStore(detail, params));
  const [live] = useState(() => new Live(run));
  const [index] = useState(() => new Cell(new SeqIndex([], run.end.get(), detail.last_seq)));
  const state = useCell(live.state);
  useEffect(() => {
    void run.notes.read();
    const title = document.title;
    document.title = `${run.name} · Custody`;
    return () => {
      document.title = title;
      live.close();
      run.close();
    };
  }, [run]);
  useDeepLink(run, params);
  const filter = useMemo<Filter>(
    () => ({
      kind: params.get("kind") ?? "", observer: params.get("observer") ?? "", verdict: params.get("verdict") ?? "",
      step: params.get("step") ?? "", q: params.get("q") ?? "", tag: params.get("tag") ?? "",
    }),
    [params.get("kind"), params.get("observer"), params.get("verdict"), params.get("step"), params.get("q"), params.get("tag")],
  );
  return (
    <div class="run">
      <Alarm run={run} />
      <Header run={run} live={state} />
      <LanesView run={run} index={index} />
      <Split name="Width of the list" start={54}>
        <section class="column" aria-label="Records">
          <FilterBar run={run} filter={filter} set={(f) => amend({ ...f })} />
          <RecordList run={run} filter={filter} index={index} live={live.watch} />
        </section>
        <Panels run={run} />
      </Split>
    </div>
  );
}

/** Follows the address. One that names a record and no instant: the cursor goes to the record. */
function useDeepLink(run: RunStore, params: URLSearchParams): void {
  const [seq, setSeq] = useState(0);
  useEffect(() => {
    setSeq(run.follow(params) ? run.seq.get() : 0);
  }, [run, params]);
  const named = useGet<RecordAnswer>(seq ? run.path("records", seq) : null);
  useEffect(() => {
    if (seq && named.error) run.panel.set("record"); // which shows what is wrong
    if (!seq || named.data?.seq !== seq || !named.data.record) return;
    run.moveTo(run.instant(named.data.record.time));
    if (!run.panel.get()) run.panel.set("record");
  }, [seq, named.data, named.error]);
}

/** The tabs beside the records. */
function Panels({ run }: { run: RunStore }) {
  const shown = useCell(run.panel);
  const asked = useCell(run.shown);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (asked && matchMedia("(max-width: 900px)").matches) box.current?.scrollIntoView();
  }, [asked]);
  useCell(run.detail);
  const panel = panels.find((p) => p.id === shown) ?? panels[0];
  if (!panel) return null;
  return (
    <div class="panels" ref={box}><Tabs name="What to look at" tabs={panels.map((p) => ({ id: p.id, title: p.title, badge: p.badge?.(run) }))} shown={panel.id}
      show={(id) => run.show(id)}>
      <Lazy key={panel.id} load={panel.load} props={{ run }} />
    </Tabs></div>
  );
}
