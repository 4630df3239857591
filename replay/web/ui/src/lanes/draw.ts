import type { Range } from "../runstore";
import { flat } from "../text";
import type { Zone } from "../time";
import type { Bucket, Hole, Item, Lane, Lanes, Mood } from "../types";
import { axisHeight, barTop, captionOf, endOf, lasts, place, type Row, ticks } from "./geometry";

/** What the picture takes from the style sheet. */
export interface Colors {
  bg: string;
  stripe: string;
  line: string;
  text: string;
  muted: string;
  mood: Record<Mood, string>;
  gap: string;
  freeze: string;
  font: string;
}

export function colorsOf(element: Element): Colors {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  const bad = value("--bad");
  return {
    bg: value("--surface"), stripe: value("--stripe"), line: value("--line"), text: value("--text"), muted: value("--muted"),
    mood: {
      ok: value("--ok"), deny: bad, revoke: value("--warn"), fail: bad, finding: value("--finding"), claim: value("--guest"), plain: value("--plain"),
    },
    gap: value("--warn"), freeze: value("--info"), font: `11px ${value("--sans")}`,
  };
}

/** All that a picture is made of. */
export interface Scene {
  /** The newest answer, and one of the whole run for where that one does not reach. */
  data: Lanes | undefined;
  whole: Lanes | undefined;
  rows: Row[];
  view: Range;
  width: number;
  height: number;
  began: number;
  end: number;
  zone: Zone;
  colors: Colors;
}

type Ctx = CanvasRenderingContext2D;

export function draw(ctx: Ctx, s: Scene): void {
  ctx.fillStyle = s.colors.bg;
  ctx.fillRect(0, 0, s.width, s.height);
  ctx.font = s.colors.font;
  ctx.textBaseline = "middle";
  stripes(ctx, s);
  axis(ctx, s);
  for (const { data, from, to } of sources(s)) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(from, 0, to - from, s.height);
    ctx.clip();
    holes(ctx, s, data.freezes, s.colors.freeze, "frozen", true);
    for (const row of s.rows) {
      const lane = data.lanes.find((l) => l.name === row.name);
      if (lane) drawLane(ctx, s, row, lane, data.end);
    }
    holes(ctx, s, data.gaps, s.colors.gap, "gap", false);
    ctx.restore();
  }
  beyond(ctx, s);
}

/** Which answer is drawn where: the newest within its window, that of the whole run beside it. */
function sources(s: Scene): { data: Lanes; from: number; to: number }[] {
  const { data, whole, view, width } = s;
  if (!data) return whole ? [{ data: whole, from: 0, to: width }] : [];
  const left = Math.min(Math.max(place(data.from, view, width), 0), width);
  const right = Math.min(Math.max(place(data.to >= data.end ? Infinity : data.to, view, width), left), width);
  const list = [{ data, from: left, to: right }];
  if (whole && left > 0) list.push({ data: whole, from: 0, to: left });
  if (whole && right < width) list.push({ data: whole, from: right, to: width });
  return list;
}

function stripes(ctx: Ctx, s: Scene): void {
  s.rows.forEach((row, i) => {
    if (i % 2 === 0) return;
    ctx.fillStyle = s.colors.stripe;
    ctx.fillRect(0, row.top, s.width, row.height);
  });
  ctx.fillStyle = s.colors.line;
  ctx.fillRect(0, axisHeight - 1, s.width, 1);
}

function axis(ctx: Ctx, s: Scene): void {
  ctx.textAlign = "left";
  for (const tick of ticks(s.view, s.width, s.began, s.zone)) {
    const x = Math.round(place(tick.at, s.view, s.width));
    ctx.fillStyle = s.colors.line;
    ctx.fillRect(x, axisHeight - 6, 1, s.height);
    ctx.fillStyle = s.colors.muted;
    ctx.fillText(tick.label, x + 4, axisHeight / 2);
  }
}

/** Where the run has not begun or is over. */
function beyond(ctx: Ctx, s: Scene): void {
  const right = place(s.end, s.view, s.width);
  if (right < s.width) {
    ctx.fillStyle = s.colors.line;
    ctx.fillRect(Math.round(right), axisHeight, 1, s.height);
    hatch(ctx, right, axisHeight, s.width - right, s.height - axisHeight, s.colors.line, 8, false);
  }
}

function drawLane(ctx: Ctx, s: Scene, row: Row, lane: Lane, end: number): void {
  if (lane.buckets.length) buckets(ctx, s, row, lane.buckets);
  const points: Item[] = [];
  const written: number[] = []; // where the last caption of each row ends
  for (const item of lane.items) {
    if (!lasts(item) && !item.until) points.push(item);
    else if (item.row >= row.rows) bar(ctx, s, row, item, end, written); // below those whose row it is
  }
  for (const item of lane.items) if ((lasts(item) || item.until) && item.row < row.rows) bar(ctx, s, row, item, end, written);
  // What matters most comes last, on top.
  const weight = (i: Item) => (i.mood === "plain" || i.mood === "ok" || i.mood === "claim" ? 0 : 1);
  points.sort((a, b) => weight(a) - weight(b));
  for (const item of points) {
    const x = place(item.at, s.view, s.width);
    if (x < -10 || x > s.width + 10) continue;
    shape(ctx, item.mood, x, barTop(row, item) + row.bar / 2, Math.min(5, row.bar / 2 + 1), s.colors, row.bar);
  }
}

/** Columns as high as the logarithm of what happened in them; denials at the foot, crossed out. */
function buckets(ctx: Ctx, s: Scene, row: Row, list: Bucket[]): void {
  const most = list.reduce((n, b) => Math.max(n, b.count), 1);
  const full = row.height - 4;
  for (const b of list) {
    const x = place(b.at, s.view, s.width);
    const w = Math.max(place(b.at + b.width, s.view, s.width) - x, 1);
    if (!b.count || x > s.width || x + w < 0) continue;
    const h = Math.max(2, (full * Math.log1p(b.count)) / Math.log1p(most));
    const bottom = row.top + row.height - 2;
    ctx.fillStyle = s.colors.mood[row.name === "exec" || row.name === "files" ? "claim" : "plain"];
    ctx.globalAlpha = 0.75;
    ctx.fillRect(x, bottom - h, w, h);
    ctx.globalAlpha = 1;
    if (b.denied) {
      const d = Math.max(5, (h * b.denied) / b.count);
      ctx.fillStyle = s.colors.mood.deny;
      ctx.fillRect(x, bottom - d, Math.max(w, 2), d);
      if (w >= 7) shape(ctx, "deny", x + w / 2, row.top + 5, 3, s.colors, row.bar);
    }
    if (b.findings) shape(ctx, "finding", x + w / 2, row.top + row.height / 2, 5, s.colors, row.bar);
  }
}

function bar(ctx: Ctx, s: Scene, row: Row, item: Item, end: number, written: number[]): void {
  const x = place(item.at, s.view, s.width);
  const stop = place(endOf(item, end), s.view, s.width);
  const until = item.until ? place(item.until, s.view, s.width) : stop;
  if (x > s.width || Math.max(stop, until) < 0) return;
  const left = Math.max(x, -4);
  const w = Math.max(Math.min(stop, s.width + 4) - left, 2);
  const y = barTop(row, item);
  const color = s.colors.mood[item.mood];
  if (until > stop) promise(ctx, Math.max(stop, left), y, Math.min(until, s.width + 4) - Math.max(stop, left), row.bar, color);
  ctx.fillStyle = s.colors.bg; // what it lies upon does not shine through
  ctx.fillRect(left, y, w, row.bar);
  fillBar(ctx, left, y, w, row.bar, color, item);
  if (!item.open && stop - x > 3 && item.until) {
    ctx.fillStyle = color; // the real end of a promise, as a line across
    ctx.fillRect(stop - 1.5, y - 2, 2, row.bar + 4);
  }
  if (item.mood === "deny" || item.mood === "revoke" || item.mood === "fail") {
    shape(ctx, item.mood, Math.min(Math.max(item.mood === "deny" ? x : stop, 4), s.width - 4), y + row.bar / 2, Math.min(5, row.bar / 2), s.colors, row.bar);
  }
  const line = Math.min(item.row, row.rows - 1);
  const from = Math.max(left, 0);
  const room = Math.max(Math.min(until, s.width), left + w) - from;
  if (from < (written[line] ?? 0) || item.row >= row.rows) return;
  if (caption(ctx, s, item, from, room, y + row.bar / 2, row.bar)) written[line] = from + room;
}

/** What the host saw is filled; what the guest claims is an outline with a light filling. */
function fillBar(ctx: Ctx, x: number, y: number, w: number, h: number, color: string, item: Item): void {
  ctx.fillStyle = color;
  ctx.globalAlpha = item.observer === "guest" ? 0.28 : 0.62;
  ctx.fillRect(x, y, w, h);
  ctx.globalAlpha = 1;
  if (item.observer === "guest") {
    if (w > 3) {
      ctx.strokeStyle = color;
      ctx.lineWidth = 1;
      ctx.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    }
  }
  ctx.fillRect(x, y, Math.min(2, w), h);
}

/** The rest of what a broker promised, after the credential had ended. */
function promise(ctx: Ctx, x: number, y: number, w: number, h: number, color: string): void {
  if (w < 1) return;
  ctx.strokeStyle = color;
  ctx.lineWidth = 1;
  ctx.setLineDash([3, 3]);
  ctx.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), h - 1);
  ctx.setLineDash([]);
}

const captions = new WeakMap<Item, string>();

function caption(ctx: Ctx, s: Scene, item: Item, x: number, w: number, y: number, size: number): boolean {
  if (w < 34 || size < 9) return false;
  let text = captions.get(item);
  if (text === undefined) captions.set(item, (text = flat(item.label).slice(0, 160)));
  text = captionOf(item, text, s.end);
  const room = w - 8;
  const fits = Math.floor(room / 5.6);
  if (text.length > fits) text = fits > 3 ? text.slice(0, fits - 1) + "…" : "";
  if (!text) return false;
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y - 8, w, 16);
  ctx.clip();
  ctx.fillStyle = s.colors.text;
  ctx.font = size < 11 ? s.colors.font.replace("11px", "9px") : size < 14 ? s.colors.font.replace("11px", "10px") : s.colors.font;
  ctx.direction = "ltr";
  ctx.fillText(text, x + 5, y + 0.5);
  ctx.restore();
  return true;
}

/** A mood's own shape, so that colour is never alone. */
export function shape(ctx: Ctx, mood: Mood, x: number, y: number, r: number, colors: Colors, height: number): void {
  const color = colors.mood[mood];
  ctx.fillStyle = color;
  ctx.strokeStyle = color;
  ctx.lineWidth = 2;
  ctx.beginPath();
  switch (mood) {
    case "plain":
      ctx.fillRect(x - 1, y - height / 2, 2, height);
      return;
    case "ok":
      ctx.arc(x, y, r * 0.75, 0, 2 * Math.PI);
      ctx.fill();
      return;
    case "claim":
      ctx.lineWidth = 1.5;
      ctx.arc(x, y, r * 0.7, 0, 2 * Math.PI);
      ctx.stroke();
      return;
    case "deny":
      ctx.moveTo(x - r, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.moveTo(x + r, y - r);
      ctx.lineTo(x - r, y + r);
      ctx.stroke();
      return;
    case "revoke":
      ctx.lineWidth = 1.5;
      ctx.arc(x, y, r, 0, 2 * Math.PI);
      ctx.moveTo(x - r * 0.7, y + r * 0.7);
      ctx.lineTo(x + r * 0.7, y - r * 0.7);
      ctx.stroke();
      return;
    case "fail":
      ctx.moveTo(x - r, y - r * 0.8);
      ctx.lineTo(x + r, y - r * 0.8);
      ctx.lineTo(x, y + r);
      ctx.fill();
      return;
    case "finding":
      ctx.moveTo(x, y - r - 1);
      ctx.lineTo(x + r + 1, y);
      ctx.lineTo(x, y + r + 1);
      ctx.lineTo(x - r - 1, y);
      ctx.fill();
  }
}

/** Stretches of which less is known, across all lanes: hatched, with a word, never blank. */
function holes(ctx: Ctx, s: Scene, list: Hole[], color: string, word: string, cross: boolean): void {
  for (const hole of list) {
    const x = place(hole.from, s.view, s.width);
    const w = Math.max(place(hole.to, s.view, s.width) - x, 4);
    if (x > s.width || x + w < 0) continue;
    ctx.fillStyle = color;
    ctx.globalAlpha = 0.1;
    ctx.fillRect(x, axisHeight, w, s.height - axisHeight);
    ctx.globalAlpha = 1;
    hatch(ctx, Math.max(x, -10), axisHeight, Math.min(w, s.width + 20), s.height - axisHeight, color, 7, cross);
    ctx.fillRect(x, axisHeight, w, 3);
    if (w > 44) label(ctx, s, word, Math.max(x, 0) + 4, axisHeight + 12, color);
  }
}

function label(ctx: Ctx, s: Scene, word: string, x: number, y: number, color: string): void {
  const w = ctx.measureText(word).width;
  ctx.fillStyle = s.colors.bg;
  ctx.fillRect(x - 2, y - 8, w + 4, 16);
  ctx.fillStyle = color;
  ctx.fillText(word, x, y);
}

function hatch(ctx: Ctx, x: number, y: number, w: number, h: number, color: string, gap: number, cross: boolean): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.beginPath();
  const start = Math.floor((x - h) / gap) * gap;
  for (let i = start; i < x + w; i += gap) {
    ctx.moveTo(i, y + h);
    ctx.lineTo(i + h, y);
    if (cross) {
      ctx.moveTo(i, y);
      ctx.lineTo(i + h, y + h);
    }
  }
  ctx.strokeStyle = color;
  ctx.globalAlpha = 0.5;
  ctx.lineWidth = 1;
  ctx.stroke();
  ctx.restore();
}
