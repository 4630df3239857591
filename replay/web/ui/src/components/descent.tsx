import { useState } from "preact/hooks";
import { get, Problem } from "../api";
import { useCell } from "../cell";
import { to } from "../router";
import type { RunStore } from "../runstore";
import { flat } from "../text";
import type { Lineage } from "../types";
import { Time } from "./basic";
import { ErrorBox } from "./boxes";

/** The tree of the runs that continue each other's state, read when it is opened. A run that is neither paused nor continues another one has none. */
export function Descent({ run }: { run: RunStore }) {
  const d = useCell(run.detail);
  const [tree, setTree] = useState<Lineage | null>(null);
  const [error, setError] = useState<Problem | null>(null);
  if (!d.facts?.parent && d.result !== "paused") return null;
  const open = async () => {
    setError(null);
    try {
      setTree(await get<Lineage>(run.path("lineage")));
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
  };
  return (
    <details class="proof-chip" onToggle={(e) => { if (e.currentTarget.open) void open(); }} onKeyDown={(e) => { if (e.key === "Escape") e.currentTarget.open = false; }}>
      <summary>Lineage</summary>
      <div class="pop small">
        {error && <ErrorBox error={error} retry={open} />}
        {tree && <Tree tree={tree} self={d.run} />}
        <p class="muted">As the store has it. <code>custody verify</code> checks the links to the ancestors.</p>
      </div>
    </details>
  );
}

function Tree({ tree, self }: { tree: Lineage; self: string }) {
  const depths = new Map<string, number>();
  for (const r of tree.runs) depths.set(r.run, r.parent === undefined ? 0 : (depths.get(r.parent) ?? 0) + 1);
  return (
    <>
      <ul class="lineage" aria-label="Runs that continue each other">
        {tree.runs.map((r) => (
          <li key={r.run} style={{ paddingInlineStart: `${Math.min(depths.get(r.run) ?? 0, 20)}em` }}>
            {r.op && <span class="muted">{flat(r.op)} </span>}
            {r.run === self
              ? <strong class="mono">{flat(r.run)}</strong>
              : r.here ? <a class="mono" href={to(["runs", r.run])}>{flat(r.run)}</a> : <span class="mono">{flat(r.run)}</span>}
            {" "}{r.here ? <Time at={r.start} date digits={0} /> : <span class="muted">not here</span>}
            {r.here && r.run !== self && <> <a href={to(["compare"], { a: self, b: r.run })}>compare</a></>}
          </li>
        ))}
      </ul>
      {tree.more && <p class="flag warn">There are more runs than are listed.</p>}
    </>
  );
}
