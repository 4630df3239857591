// A terminal without a display: output goes in, rows of text with names of colours come out. xterm's own
// parser does the work. Nothing that output asks of a terminal beyond showing text happens here: titles,
// links, the clipboard, answers, windows, sounds and colours of the palette have no listener.

import { Terminal, type IBufferCell, type IBufferLine } from "@xterm/headless";

/** Text of one look. Its classes are of a fixed list, never made of output. */
export interface Span {
  text: string;
  look: string;
}

export type Row = Span[];

/** Rows that are kept above the screen; older ones are forgotten, as in a terminal. */
export const scrollback = 400;
export const rows = 30;

/** A repetition that output asks for beyond this is ignored: it could keep a browser busy for hours. */
const mostRepeats = 4096;

/** Control sequences that repeat something as often as their number says, as prefix and final character. */
const repeaters = ["@", "A", "B", "C", "D", "E", "F", "I", "L", "M", "P", "S", "T", "X", "Z", "`", "a", "b", "e", " @", " A", "'}", "'~"];

/** More than that of combining marks on one character is left out. */
const mostMarks = 8;

export class Screen {
  readonly #term: Terminal;
  readonly #cell: IBufferCell;

  constructor(columns: number, pipe: boolean) {
    this.#term = new Terminal({
      cols: columns, rows, scrollback, convertEol: pipe, allowProposedApi: true, logLevel: "off",
    });
    this.#cell = this.#term.buffer.normal.getNullCell();
    for (const name of repeaters) {
      const intermediates = name.slice(0, -1);
      const id = intermediates ? { intermediates, final: name.slice(-1) } : { final: name };
      this.#term.parser.registerCsiHandler(id, (params) => params.flat().some((n) => n > mostRepeats));
    }
  }

  /** Takes output in; it shows when the promise is done. */
  feed(text: string): Promise<void> {
    return new Promise((done) => this.#term.write(text, done));
  }

  /** The rows above the screen and those on it, without empty ones at the end. */
  rows(): Row[] {
    const buffer = this.#term.buffer.active;
    const all: Row[] = [];
    for (let y = 0; y < buffer.length; y++) {
      const line = buffer.getLine(y);
      all.push(line ? this.#row(line) : []);
    }
    while (all.length > 0 && all.at(-1)!.length === 0) all.pop();
    return all;
  }

  #row(line: IBufferLine): Row {
    const row: Row = [];
    let last: Span | undefined;
    for (let x = 0; x < line.length; x++) {
      const cell = line.getCell(x, this.#cell);
      if (!cell || cell.getWidth() === 0) continue; // the second half of a wide character
      const text = visible(cell.getChars());
      const look = lookOf(cell);
      if (last?.look === look) last.text += text;
      else row.push((last = { text, look }));
    }
    const end = row.at(-1);
    if (end && end.look === "") {
      end.text = end.text.trimEnd();
      if (end.text === "") row.pop();
    }
    return row;
  }

  dispose(): void {
    this.#term.dispose();
  }
}

/** What one cell shows: characters that show nothing or turn text around are made visible. */
export function visible(chars: string): string {
  if (chars === "") return " ";
  if (chars.length === 1 && chars >= " " && chars <= "~") return chars;
  const points = [...chars];
  const kept = points.length > 1 + mostMarks ? [...points.slice(0, 1 + mostMarks), "…"] : points;
  return kept.map((c) => (/[\p{C}\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0\u2800]/u.test(c) ? "\u00b7" : c)).join("");
}

/** Class names for a cell: t-f0 to t-f15 and t-b0 to t-b15 for colours, and a few for styles. */
function lookOf(cell: IBufferCell): string {
  if (cell.isAttributeDefault()) return "";
  let look = "";
  let fore = colour(cell.isFgDefault(), cell.isFgPalette(), cell.getFgColor());
  let back = colour(cell.isBgDefault(), cell.isBgPalette(), cell.getBgColor());
  if (cell.isInverse()) {
    [fore, back] = [back, fore];
    look += " t-inverse";
  }
  if (fore >= 0) look += ` t-f${fore}`;
  if (back >= 0) look += ` t-b${back}`;
  if (cell.isBold()) look += " t-bold";
  if (cell.isDim()) look += " t-dim";
  if (cell.isItalic()) look += " t-italic";
  if (cell.isUnderline()) look += " t-underline";
  if (cell.isStrikethrough()) look += " t-strike";
  if (cell.isInvisible()) look += " t-hidden"; // shown all the same: a reviewer sees what was hidden
  return look.trimStart();
}

/** One of the sixteen colours, or -1 for the theme's own. */
function colour(isDefault: boolean, isPalette: boolean, value: number): number {
  if (isDefault) return -1;
  if (!isPalette) return nearest((value >> 16) & 255, (value >> 8) & 255, value & 255);
  if (value < 16) return value;
  if (value >= 232) {
    const grey = 8 + 10 * (value - 232);
    return nearest(grey, grey, grey);
  }
  const level = (n: number) => (n === 0 ? 0 : 55 + 40 * n);
  const cube = value - 16;
  return nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

/** The sixteen colours of xterm, to find the nearest one. The theme shows them in its own way. */
const palette: [number, number, number][] = [
  [0, 0, 0], [205, 0, 0], [0, 205, 0], [205, 205, 0], [0, 0, 238], [205, 0, 205], [0, 205, 205], [229, 229, 229],
  [127, 127, 127], [255, 0, 0], [0, 255, 0], [255, 255, 0], [92, 92, 255], [255, 0, 255], [0, 255, 255], [255, 255, 255],
];

function nearest(r: number, g: number, b: number): number {
  let best = 0;
  let least = Infinity;
  palette.forEach(([x, y, z], i) => {
    const away = (r - x) ** 2 + (g - y) ** 2 + (b - z) ** 2;
    if (away < least) [best, least] = [i, away];
  });
  return best;
}
