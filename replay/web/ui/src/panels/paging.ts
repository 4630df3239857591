import { useEffect, useState } from "preact/hooks";
import { get, href, Problem, type Query } from "../api";

/** A page of a list: what it holds, the cursor of the next one, and whether time was up before all was looked at. */
export interface Page<T> {
  rows: T[];
  next?: string | undefined;
  partial?: boolean | undefined;
}

export interface Pages<T> {
  rows: T[];
  /** There is more, or may be. */
  more: boolean;
  /** The search ran out of time: what was found is shown, and going on finds the rest. */
  partial: boolean;
  loading: boolean;
  error: Problem | undefined;
  /** Fetches the next page, or this one again after an error. */
  on: () => void;
  /** Begins again. */
  reload: () => void;
}

const mostRows = 20_000;

/** A list that comes page by page. It begins again when the path or the query changes; null asks for nothing. */
export function usePages<T>(path: string | null, query: Query, read: (answer: never) => Page<T>): Pages<T> {
  const about = path === null ? "" : href(path, query);
  const [state, setState] = useState<Begun<T>>(begun(""));
  const [turn, setTurn] = useState({ about: "", n: 0 });
  const [again, setAgain] = useState(0);
  const mine = state.about === about + again;
  const wanted = turn.about === about + again ? turn.n : 0;
  useEffect(() => {
    if (path === null) return;
    const stop = new AbortController();
    const before = mine && wanted > 0 ? state : begun<T>(about + again);
    setState({ ...before, about: about + again, done: false, error: undefined });
    get<never>(path, { ...query, cursor: before.next }, stop.signal).then(
      (answer) => {
        const page = read(answer);
        const rows = [...before.rows, ...page.rows];
        setState({ about: about + again, rows, next: rows.length < mostRows ? page.next : undefined, partial: Boolean(page.partial), done: true });
      },
      (e: unknown) => {
        if (stop.signal.aborted) return;
        setState({ ...before, about: about + again, done: true, error: e instanceof Problem ? e : new Problem({ title: "The answer could not be read", detail: String(e) }) });
      },
    );
    return () => stop.abort();
  }, [about, again, wanted]);
  const now = mine ? state : begun<T>(about);
  return {
    rows: now.rows, more: now.next !== undefined, partial: now.partial, loading: path !== null && !now.done, error: now.error,
    on: () => setTurn({ about: about + again, n: wanted + 1 }), reload: () => setAgain(again + 1),
  };
}

interface Begun<T> {
  about: string;
  rows: T[];
  next: string | undefined;
  partial: boolean;
  done: boolean;
  error?: Problem | undefined;
}

function begun<T>(about: string): Begun<T> {
  return { about, rows: [], next: undefined, partial: false, done: false };
}
