import type { Range } from "../runstore";
import { bytes, clip, flat, plural } from "../text";
import { clock, day, span, type Zone } from "../time";
import type { Bucket, Hole, Item, Lane, Lanes } from "../types";

// Where things are in the picture. Pure: time is milliseconds since the run began, places are
// CSS pixels of the plot, whose left edge is 0.

/** The place of an instant. */
export const place = (ms: number, view: Range, width: number) => ((ms - view.from) / (view.to - view.from)) * width;

/** The instant of a place. */
export const instant = (x: number, view: Range, width: number) => view.from + (x / width) * (view.to - view.from);

/** A view that is factor as wide, with the instant about staying where it is. */
export function zoomed(view: Range, factor: number, about: number): Range {
  return { from: about - (about - view.from) * factor, to: about + (view.to - about) * factor };
}

export function panned(view: Range, by: number): Range {
  return { from: view.from + by, to: view.to + by };
}

/** A lane's place in the picture. */
export interface Row {
  name: string;
  top: number;
  height: number;
  /** Height of one row of bars, and how many there are. */
  bar: number;
  rows: number;
  /** Rows that found no room of their own and share the last. */
  more: number;
}

/** How lanes are called, who saw what is in them, and how many rows of bars they get at most. */
export const known: Record<string, { title: string; one: string; many?: string; seen: string; most: number; bar: number }> = {
  steps: { title: "Steps", one: "step", seen: "host", most: 2, bar: 14 },
  exec: { title: "Processes", one: "process", many: "processes", seen: "guest claims", most: 5, bar: 9 },
  files: { title: "Files", one: "file operation", seen: "guest claims", most: 1, bar: 14 },
  dns: { title: "DNS", one: "question", seen: "host", most: 1, bar: 14 },
  flows: { title: "Connections", one: "connection", seen: "host", most: 4, bar: 9 },
  llm: { title: "Model calls", one: "model call", seen: "host", most: 2, bar: 11 },
  secrets: { title: "Secrets", one: "live secret", seen: "host", most: 6, bar: 11 },
  output: { title: "Output", one: "piece of output", many: "pieces of output", seen: "host", most: 1, bar: 14 },
  findings: { title: "Findings", one: "finding", seen: "host", most: 1, bar: 16 },
};

export const axisHeight = 22;
const padding = 5;

/** Lays lanes out below each other; rows is the number of rows of bars that each has had so far. */
export function layout(names: string[], rows: Map<string, number>): { lanes: Row[]; height: number } {
  let top = axisHeight;
  const lanes: Row[] = [];
  for (const name of names) {
    const k = known[name] ?? { most: 2, bar: 11 };
    const wanted = Math.max(rows.get(name) ?? 1, 1);
    const n = Math.min(wanted, k.most);
    const height = Math.max(n * (k.bar + 1), 19) + padding;
    lanes.push({ name, top, height, bar: k.bar, rows: n, more: wanted - n });
    top += height;
  }
  return { lanes, height: top };
}

/** Notes how many rows of bars each lane needs; it never shrinks, so that the picture keeps still. */
export function needed(rows: Map<string, number>, lanes: Lane[]): boolean {
  let grew = false;
  for (const lane of lanes) {
    const most = lane.items.reduce((n, item) => (lasts(item) || item.until ? Math.max(n, item.row + 1) : n), 1);
    if (most > (rows.get(lane.name) ?? 0)) {
      rows.set(lane.name, most);
      grew = true;
    }
  }
  return grew;
}

/** Top of an item's bar. What does not find room shares the last row. */
export function barTop(row: Row, item: Item): number {
  const used = row.rows * (row.bar + 1) - 1;
  const first = row.top + (row.height - used) / 2;
  return first + Math.min(item.row, row.rows - 1) * (row.bar + 1);
}

/** Where an item ends: an open one goes on to the end of what is known. */
export function endOf(item: Item, end: number): number {
  if (item.open) return Math.max(end, item.at);
  return item.end && item.end > item.at ? item.end : item.at;
}

/** Whether it lasts, and so is a bar and no point. */
export const lasts = (item: Item) => Boolean(item.open) || (item.end ?? 0) > item.at;

export interface Tick {
  at: number;
  label: string;
}

/** Steps between ticks in milliseconds: 1, 2, 5 of each power of ten, then those of clocks. */
const steps: number[] = [];
for (let n = 0.001; n < 1000; n *= 10) steps.push(n, n * 2, n * 5);
steps.push(1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 288e5, 432e5, 864e5);

export function tickStep(view: Range, width: number, room = 110): number {
  const least = ((view.to - view.from) / Math.max(width, 1)) * room;
  const step = steps.find((s) => s >= least);
  return step ?? Math.ceil(least / 864e5) * 864e5;
}

/** The axis: round times of the clock of the zone, or round offsets from the run's start where they are finer than that. */
export function ticks(view: Range, width: number, began: number, zone: Zone): Tick[] {
  const step = tickStep(view, width);
  const fine = step < 1;
  const shift = fine || Number.isNaN(began) ? 0 : zone === "utc" ? began : began - new Date(began).getTimezoneOffset() * 60_000;
  const list: Tick[] = [];
  const first = Math.ceil((view.from + shift) / step);
  const last = Math.floor((view.to + shift) / step);
  for (let n = first; n <= last && list.length < 200; n++) {
    const at = n * step - shift;
    list.push({ at, label: fine ? `+${offsetOf(at, step)}` : label(began + at, step, zone) });
  }
  return list;
}

function label(wall: number, step: number, zone: Zone): string {
  wall += 1e-4; // it stands on a round number, but for what fractions lose
  if (step >= 864e5) return day(wall, zone);
  return clock(wall, zone, step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3);
}

function offsetOf(ms: number, step: number): string {
  return `${(ms / 1000).toFixed(Math.min(6, Math.max(3, Math.ceil(-Math.log10(step / 1000) - 1e-9))))} s`;
}

/** What is at a place of the picture. */
export interface Hit {
  lane: Row;
  item?: Item;
  bucket?: Bucket;
  hole?: Hole;
  what?: "Gap" | "Freeze";
}

/** The item or bucket nearest to a place, within reach pixels. */
export function hit(data: Lanes, rows: Row[], view: Range, width: number, x: number, y: number, reach = 6): Hit | undefined {
  const row = rows.find((r) => y >= r.top && y < r.top + r.height);
  const lane = row && data.lanes.find((l) => l.name === row.name);
  if (!row || !lane) return undefined;
  let best: Item | undefined;
  let least = reach;
  for (const item of lane.items) {
    const left = place(item.at, view, width);
    const right = place(Math.max(endOf(item, data.end), item.until ?? 0), view, width);
    const dx = x < left ? left - x : x > right ? x - right : 0;
    const top = barTop(row, item);
    const dy = y < top ? top - y : y > top + row.bar ? y - top - row.bar : 0;
    const off = dx + dy + (lasts(item) ? 0.5 : 0); // a point lies on top of a bar
    if (off < least) [best, least] = [item, off];
  }
  if (best) return { lane: row, item: best };
  const at = instant(x, view, width);
  const bucket = lane.buckets.find((b) => at >= b.at && at < b.at + b.width && b.count > 0);
  if (bucket) return { lane: row, bucket };
  const slack = (reach / 2 / width) * (view.to - view.from);
  const gap = holeAt(data.gaps, at, slack);
  const freeze = gap ? undefined : holeAt(data.freezes, at, slack);
  return gap ? { lane: row, hole: gap, what: "Gap" } : freeze ? { lane: row, hole: freeze, what: "Freeze" } : undefined;
}

/** The hole at an instant, if there is one; slack is what a pixel lasts. */
export function holeAt(holes: Hole[], at: number, slack: number): Hole | undefined {
  return holes.find((h) => at >= h.from - slack && at <= h.to + slack);
}

/** What is known of a hole, in words. */
export function holeText(hole: Hole, what: "Gap" | "Freeze"): string {
  if (what === "Freeze") return `The machine was frozen${hole.what ? `: ${hole.what}` : ""}`;
  const lost = [hole.lost ? `${plural(hole.lost, "record")} lost` : "", hole.bytes ? `${bytes(hole.bytes)} of output lost` : ""].filter(Boolean).join(", ");
  return `${hole.seq ? "" : "Undeclared gap: "}${lost || "something was lost"}${hole.what ? ` (${hole.what})` : ""}`;
}

/** What is under the cursor: in each lane what lasts at that instant, and points within slack. */
export function under(data: Lanes, at: number, slack: number): { lane: string; items: Item[] }[] {
  return data.lanes
    .map((lane) => ({
      lane: lane.name,
      items: lane.items.filter((i) => (lasts(i) ? i.at <= at && at <= endOf(i, data.end) : Math.abs(i.at - at) <= slack)),
    }))
    .filter((l) => l.items.length > 0);
}

/** A sentence of what is under the cursor. */
export function summary(data: Lanes, at: number, slack: number): string {
  const parts = under(data, at, slack).map(({ lane, items }) => (known[lane] ? plural(items.length, known[lane].one, known[lane].many) : `${items.length} in ${lane}`));
  const gap = holeAt(data.gaps, at, slack);
  const freeze = holeAt(data.freezes, at, slack);
  if (gap) parts.unshift(`a gap of the record (${clip(flat(gap.what), 120).text || "cause unknown"})`);
  if (freeze) parts.unshift("the machine is frozen");
  return parts.length ? parts.join(", ") : "nothing here";
}

/** The words for a mood. */
export const moods: Record<Item["mood"], string> = {
  ok: "allowed",
  deny: "denied",
  revoke: "revoked",
  fail: "failed",
  finding: "finding",
  claim: "guest claims",
  plain: "",
};

/** What stands in an item's bar: of a credential also how much of its promise it lived. */
export function captionOf(item: Item, label: string, end: number): string {
  if (!item.until || item.until <= item.at) return label;
  return `${label}  ${span(endOf(item, end) - item.at)} of ${span(item.until - item.at)}`;
}

/** How long an item lasts, in words. */
export function lengthOf(item: Item, end: number): string {
  if (!lasts(item)) return "";
  return item.open ? `${span(endOf(item, end) - item.at)} so far` : span(endOf(item, end) - item.at);
}
