import { get, post, Problem } from "./api";
import { Cell } from "./cell";
import type { RunNote } from "./types";

/** What is known of the notes on a run; undefined before they were read. */
export interface Notes {
  list: RunNote[];
  partial: boolean;
  error?: Problem;
}

/** A note to be written, or with withdraws the withdrawal of one. */
export interface NewNote {
  seq?: number;
  text?: string;
  tags?: string[];
  withdraws?: string;
}

/** The notes on one run: read once, and again when one was written and until the store has it. */
export class NoteStore {
  readonly notes = new Cell<Notes | undefined>(undefined);
  private stop = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private path: string) {}

  async read(): Promise<void> {
    clearTimeout(this.timer);
    const { signal } = this.stop;
    try {
      const { notes, partial } = await get<{ notes: RunNote[]; partial: boolean }>(this.path, {}, signal);
      this.notes.set({ list: notes, partial });
      if (notes.some((n) => n.state === "recorded")) this.timer = setTimeout(() => void this.read(), 2000);
    } catch (e) {
      if (signal.aborted) return;
      this.notes.set({ list: this.notes.get()?.list ?? [], partial: true, error: e instanceof Problem ? e : new Problem({ detail: String(e) }) });
    }
  }

  /** Writes a note. What the server says against it is thrown. */
  async write(note: NewNote): Promise<void> {
    await post(this.path, note, {}, this.stop.signal);
    await this.read();
  }

  /** The notes on a record, on the run as a whole for 0. */
  of(seq: number): RunNote[] {
    return (this.notes.get()?.list ?? []).filter((n) => (n.seq ?? 0) === seq);
  }

  close(): void {
    clearTimeout(this.timer);
    this.stop.abort();
  }
}

/** The tags of notes that are not withdrawn, sorted, each once. */
export const tagsOf = (notes: RunNote[]): string[] => [...new Set(notes.filter((n) => !n.withdrawn).flatMap((n) => n.tags ?? []))].sort();

const tag = /^[a-z0-9][a-z0-9._-]{0,31}$/;

/** Parses tags that the user typed: words with spaces, commas or # between; error names what is none. */
export function readTags(text: string): { tags: string[]; error?: string } {
  const words = [...new Set(text.toLowerCase().split(/[\s,#]+/).filter(Boolean))];
  const bad = words.find((word) => !tag.test(word));
  if (bad !== undefined) return { tags: [], error: `${JSON.stringify(bad.slice(0, 40))} is not a tag: use a to z, 0 to 9, dots, dashes and underscores, with a letter or a digit first, at most 32.` };
  if (words.length > 8) return { tags: [], error: "At most 8 tags, please." };
  return { tags: words };
}
