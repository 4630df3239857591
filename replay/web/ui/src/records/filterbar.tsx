import { useEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { tagsOf } from "../notes";
import type { RunStore } from "../runstore";
import { count, flat } from "../text";
import { kinds as all, type Kind } from "../types";
import { type Filter, narrows, none } from "./source";

/** What narrows the list: kinds as buttons with their numbers, who saw it, verdict, step and text. */
export function FilterBar({ run, filter, set }: { run: RunStore; filter: Filter; set: (filter: Filter) => void }) {
  const detail = useCell(run.detail);
  const chosen = filter.kind ? filter.kind.split(",") : [];
  const toggle = (kind: Kind) => {
    const next = chosen.includes(kind) ? chosen.filter((k) => k !== kind) : [...chosen, kind];
    set({ ...filter, kind: next.join(",") });
  };
  const present = all.filter((kind) => (detail.kinds?.[kind] ?? 0) > 0 || chosen.includes(kind));
  const steps = detail.steps ?? [];
  return (
    <div class="filters" role="search" aria-label="Narrow the records">
      <div class="filter-row">
        <Search text={filter.q} set={(q) => set({ ...filter, q })} />
        <label><span class="sr">Seen by</span>
          <select value={filter.observer} onChange={(e) => set({ ...filter, observer: e.currentTarget.value })}>
            <option value="">Seen by anyone</option><option value="host">The host saw it</option><option value="guest">The guest claims it</option>
          </select>
        </label>
        <label><span class="sr">Verdict</span>
          <select value={filter.verdict} onChange={(e) => set({ ...filter, verdict: e.currentTarget.value })}>
            <option value="">Any verdict</option><option value="allow">Allowed</option><option value="deny">Denied</option>
          </select>
        </label>
        {steps.length > 0 && (
          <label><span class="sr">Step</span>
            <select value={filter.step} onChange={(e) => set({ ...filter, step: e.currentTarget.value })}>
              <option value="">Every step</option>{steps.map((s) => <option value={s.name}>{flat(s.name).slice(0, 60)}</option>)}
            </select>
          </label>
        )}
        <Tagged run={run} filter={filter} set={set} />
        {narrows(filter) && <button type="button" class="link" onClick={() => set(none)}>Clear</button>}
      </div>
      <div class="chips" role="group" aria-label="Kinds of records">
        {present.map((kind) => (
          <button type="button" class={`chip k-${kind}`} aria-pressed={chosen.includes(kind)} onClick={() => toggle(kind)}>
            {kind} <span class="muted">{count(detail.kinds[kind])}</span>
          </button>
        ))}
      </div>
    </div>
  );
}

/** Narrows the list to records with notes, where there are some. */
function Tagged({ run, filter, set }: { run: RunStore; filter: Filter; set: (filter: Filter) => void }) {
  const notes = (useCell(run.notes.notes)?.list ?? []).filter((n) => n.seq);
  const tags = tagsOf(notes);
  if (filter.tag && filter.tag !== "*" && !tags.includes(filter.tag)) tags.push(filter.tag);
  if (notes.length === 0 && !filter.tag) return null;
  return (
    <label><span class="sr">Notes</span>
      <select value={filter.tag} onChange={(e) => set({ ...filter, tag: e.currentTarget.value })}>
        <option value="">Noted or not</option><option value="*">Noted</option>{tags.map((t) => <option value={t}>#{flat(t)}</option>)}
      </select>
    </label>
  );
}

function Search({ text, set }: { text: string; set: (text: string) => void }) {
  const [value, setValue] = useState(text);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => setValue(text), [text]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <input type="search" placeholder="Search in the records" aria-label="Search in the records" value={value} maxLength={500} spellcheck={false}
      onInput={(e) => {
        const next = e.currentTarget.value;
        setValue(next);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => set(next), 350);
      }} />
  );
}
