import { useEffect, useState } from "preact/hooks";
import { Problem } from "../api";
import { looked } from "../cell";

/** How often a view is read again. Every request is an entry in the access log. */
const every = 5000;

export interface Polled<T> {
  data: T | undefined;
  error: Problem | undefined;
  /** Reads now. */
  again: () => void;
}

/** Reads again every few seconds while the page is visible. Data stays until newer data is there; an error ends it until `again`. */
export function usePolled<T>(read: (signal: AbortSignal) => Promise<T>, on: boolean): Polled<T> {
  const [state, setState] = useState<{ data?: T; error?: Problem }>({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!on) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    const ask = async () => {
      await looked();
      if (stop.signal.aborted) return;
      try {
        const data = await read(stop.signal);
        if (stop.signal.aborted) return;
        setState({ data });
        timer = setTimeout(ask, every);
      } catch (e) {
        if (stop.signal.aborted) return;
        const error = e instanceof Problem ? e : new Problem({ title: "The answer could not be read", detail: String(e) });
        setState((old) => ({ ...old, error }));
      }
    };
    void ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [on, turn]);
  return { data: state.data, error: state.error, again: () => setTurn((n) => n + 1) };
}
