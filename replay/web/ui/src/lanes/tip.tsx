import { useCell } from "../cell";
import { Seen, Words } from "../components/basic";
import * as prefs from "../prefs";
import type { RunStore } from "../runstore";
import { count, flat, plural } from "../text";
import { clock, span } from "../time";
import { type Hit, holeText, known, lengthOf, moods } from "./geometry";

/** What the mouse is over. */
export function Tip({ run, over, end, width }: { run: RunStore; over: { hit: Hit; x: number; y: number }; end: number; width: number }) {
  const zone = useCell(prefs.zone);
  const { hit, x, y } = over;
  const left = x > width / 2;
  const style = left ? { right: `${width - x + 12}px`, top: `${y + 14}px` } : { left: `${x + 12}px`, top: `${y + 14}px` };
  const lane = known[hit.lane.name]?.title ?? hit.lane.name;
  if (hit.bucket) {
    const b = hit.bucket;
    return (
      <div class="tip" style={style} aria-hidden="true">
        <strong>{lane}: {count(b.count)} in {span(b.width)}</strong>
        <div>{clock(run.wall(b.at), zone)}</div>
        {b.denied > 0 && <div class="bad">✕ {count(b.denied)} denied</div>}
        {b.findings > 0 && <div class="warn">◆ {plural(b.findings, "finding")}</div>}
        <div class="muted">Zoom in to see each</div>
      </div>
    );
  }
  if (hit.hole) {
    return (
      <div class="tip" style={style} aria-hidden="true">
        <strong>{flat(holeText(hit.hole, hit.what ?? "Gap"))}</strong>
        <div><span class="num">{clock(run.wall(hit.hole.from), zone)}</span> <span class="muted">for {span(hit.hole.to - hit.hole.from)}</span></div>
        {!hit.hole.seq && <div class="warn">Not declared: it was found by its missing numbers</div>}
      </div>
    );
  }
  const item = hit.item!;
  return (
    <div class="tip" style={style} aria-hidden="true">
      <strong><Words text={item.label} limit={160} /></strong>
      <div><span class="num">{clock(run.wall(item.at), zone)}</span> {lengthOf(item, end) && <span class="muted">for {lengthOf(item, end)}</span>}</div>
      {item.until ? <div class="muted">promised until {clock(run.wall(item.until), zone)}</div> : null}
      <div class="row"><span>{lane}</span> <Seen by={item.observer} /> {moods[item.mood] && item.mood !== "claim" && <span class={`mood ${item.mood}`}>{moods[item.mood]}</span>} <span class="muted">seq {item.seq}</span></div>
    </div>
  );
}
