import type { Lanes } from "../types";

/**
 * Which record was the last at an instant, as far as the lanes tell: they have the seq and the time of
 * what they show. The list of records starts from there and looks closer.
 */
export class SeqIndex {
  private at: number[] = [];
  private seq: number[] = [];

  constructor(answers: (Lanes | undefined)[], private end = 0, private last = 0) {
    const pairs: [number, number][] = [];
    for (const answer of answers) {
      for (const lane of answer?.lanes ?? []) {
        for (const thing of lane.items) if (thing.seq) pairs.push([thing.at, thing.seq]);
        for (const thing of lane.buckets) if (thing.seq) pairs.push([thing.at, thing.seq]);
      }
    }
    pairs.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let highest = 0;
    for (const [at, seq] of pairs) {
      if (seq < highest) continue; // the order of seq is that of the record
      highest = seq;
      this.at.push(at);
      this.seq.push(seq);
    }
  }

  /** The seq of the last known record up to ms; without any knowledge a guess by time. */
  seqAt(ms: number): number {
    if (ms >= this.end && this.last) return this.last;
    let low = -1;
    let high = this.at.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.at[middle]! <= ms) low = middle;
      else high = middle - 1;
    }
    if (low >= 0) return this.seq[low]!;
    return this.at.length || !this.end ? 1 : Math.max(1, Math.round((ms / this.end) * this.last));
  }
}
