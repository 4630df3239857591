// The output of a run as it came, piece by piece, and which of it a terminal had shown at an instant.

/** One piece of output; at is in milliseconds since the run began. */
export interface Piece {
  seq: number;
  at: number;
  step: string;
  stream: string;
  text: string | { base64: string };
}

/** Which pieces are wanted: of one step or of all, of some streams. */
export interface Selection {
  step: string;
  streams: ReadonlySet<string>;
}

/** Output that is fed again when the user goes back in time: enough for any screen, and done in an instant. */
export const window = 512 << 10;

interface Cut {
  at: number; // never less than that of the piece before
  text: string;
  end: number; // characters up to here
  seq: number;
}

/** A selection's pieces as text, in the order of the record. It only grows. */
export class Tape {
  #cuts: Cut[] = [];
  #decoders = new Map<string, TextDecoder>();

  #taken = 0;

  constructor(readonly selection: Selection) {}

  /** Takes up what is new in a list that only grows. What the selection does not want is left out. */
  grow(pieces: readonly Piece[]): void {
    for (; this.#taken < pieces.length; this.#taken++) {
      const p = pieces[this.#taken]!;
      const { step, streams } = this.selection;
      if ((step !== "" && p.step !== step) || !streams.has(p.stream)) continue;
      const text = this.#decode(p);
      const before = this.#cuts.at(-1);
      this.#cuts.push({ at: Math.max(p.at, before?.at ?? p.at), text, end: (before?.end ?? 0) + text.length, seq: p.seq });
    }
  }

  /** Characters that may be cut between two pieces are put together again, for each stream of its own. */
  #decode(p: Piece): string {
    const name = `${p.step}\n${p.stream}`;
    let decoder = this.#decoders.get(name);
    if (!decoder) this.#decoders.set(name, (decoder = new TextDecoder()));
    return decoder.decode(bytesOf(p.text), { stream: true });
  }

  get length(): number {
    return this.#cuts.length;
  }

  /** How many pieces had been shown at an instant. */
  shownAt(at: number): number {
    let low = 0;
    let high = this.#cuts.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.#cuts[mid]!.at <= at) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** Where to begin to feed a terminal that is to show the first n pieces: 0, or a window before. */
  startFor(n: number): number {
    const end = this.#cuts[n - 1]?.end ?? 0;
    if (end <= 2 * window) return 0;
    const from = Math.floor(end / window) * window - window; // the same for neighbours of n
    let i = n;
    while (i > 0 && this.#cuts[i - 1]!.end > from) i--;
    return i;
  }

  /** Text of the pieces from i up to n. */
  text(i: number, n: number): string {
    let s = "";
    for (; i < n; i++) s += this.#cuts[i]!.text;
    return s;
  }

  /** Characters before piece i. */
  before(i: number): number {
    return this.#cuts[i - 1]?.end ?? 0;
  }

  /** Instant of piece i, and the record that holds it. */
  piece(i: number): { at: number; seq: number } | undefined {
    return this.#cuts[i];
  }
}

/** Exact bytes of a record's text. */
export function bytesOf(text: Piece["text"]): Uint8Array {
  if (typeof text === "string") return new TextEncoder().encode(text);
  try {
    return Uint8Array.from(atob(text.base64), (c) => c.charCodeAt(0));
  } catch {
    return new TextEncoder().encode("\ufffd");
  }
}
