import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Cell } from "./cell";
import type { ProblemDetails, Session } from "./types";

/** An answer that is no answer, with what to do about it (RFC 9457). */
export class Problem extends Error {
  readonly status: number;
  readonly title: string;
  readonly hint: string;

  constructor(details: ProblemDetails) {
    super(details.detail || details.title || "the server gave no reason");
    this.status = details.status ?? 0;
    this.title = details.title ?? "";
    this.hint = details.hint ?? "";
  }
}

/** The principal that is signed in; null when there is none, undefined before that is known. */
export const session = new Cell<Session | null | undefined>(undefined);

/** The tenant that is looked at; undefined where there is only one. */
export const tenant = new Cell<string | undefined>(undefined);

/** Set while requests cannot be answered and are being tried again: what the page says of it. */
export const trouble = new Cell<{ text: string; hint: string; since: number } | null>(null);

export type Query = Record<string, string | number | boolean | undefined | null | readonly string[]>;

/** The address of a route of the API, for links to downloads and for streams too. */
export function href(path: string, query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    params.set(key, Array.isArray(value) ? value.join(",") : String(value));
  }
  const name = tenant.get();
  if (name !== undefined && !params.has("tenant")) params.set("tenant", name);
  const text = params.toString();
  return `/api/v1${path}${text ? "?" + text : ""}`;
}

/** The path of something about a run: runPath("r-1", "records", 4). */
export const runPath = (run: string, ...rest: (string | number)[]) =>
  "/" + ["runs", run, ...rest].map((part) => encodeURIComponent(String(part))).join("/");

/** How an answer is read. */
type Read<T> = (response: Response) => Promise<T>;

const json = <T>(response: Response) => response.json() as Promise<T>;

/** Asks the API for the bytes of an answer. */
export const getBytes = (path: string, signal?: AbortSignal) =>
  get(path, {}, signal, async (response) => new Uint8Array(await response.arrayBuffer()));

/**
 * Asks the API. While the server or its store is away (no connection, 502 to 504) and where there were
 * too many requests (429) it waits and retries until the signal aborts; `trouble` reports that meanwhile.
 */
export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal, read: Read<T> = json): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    try {
      const answer = await send<T>("GET", href(path, query), undefined, signal, read);
      trouble.set(null);
      return answer;
    } catch (error) {
      if (!(error instanceof Problem) || ![0, 429, 502, 503, 504].includes(error.status)) {
        if (error instanceof Problem) trouble.set(null); // it answers
        throw error;
      }
      if (error.status !== 429) {
        trouble.set({ text: error.message, hint: error.hint, since: trouble.get()?.since ?? Date.now() });
      }
      await pause(Math.min(500 * 2 ** attempt, 8000), signal);
    }
  }
}

/** Sends something to the API, once. */
export const post = <T>(path: string, body?: unknown, query: Query = {}, signal?: AbortSignal) =>
  send<T>("POST", href(path, query), body ?? {}, signal);

/** Puts something in the place of what is there. */
export const put = <T>(path: string, body: unknown, query: Query = {}, signal?: AbortSignal) =>
  send<T>("PUT", href(path, query), body, signal);

export const del = <T>(path: string, query: Query = {}, signal?: AbortSignal) =>
  send<T>("DELETE", href(path, query), undefined, signal);

async function send<T>(method: string, address: string, body: unknown, signal?: AbortSignal, read: Read<T> = json): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const csrf = session.get()?.csrf;
  if (csrf && method !== "GET") headers["X-CSRF-Token"] = csrf;
  const init: RequestInit = { method, headers, credentials: "same-origin", redirect: "error", cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(address, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({
      title: "No connection",
      detail: "The server does not answer.",
      hint: "Is custody serve running? The page continues when it is available again.",
    });
  }
  if (response.ok) return response.status === 204 ? (undefined as T) : read(response);
  const problem = await problemOf(response);
  if (response.status === 401 && session.get()) session.set(null); // it is over: the login page
  throw problem;
}

async function problemOf(response: Response): Promise<Problem> {
  const fallback = { status: response.status, title: response.statusText || `status ${response.status}` };
  try {
    const details = (await response.json()) as ProblemDetails;
    return new Problem({ ...fallback, ...details, status: response.status });
  } catch {
    return new Problem(fallback);
  }
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/** What useGet knows: data stays while newer data is on its way (loading), error replaces it. */
export interface Got<T> {
  data: T | undefined;
  error: Problem | undefined;
  loading: boolean;
  reload: () => void;
}

/**
 * Asks for a path and again when the path, the query or `version` changes; null asks for nothing.
 * An answer that has been overtaken is dropped.
 */
export function useGet<T>(path: string | null, query: Query = {}, version: unknown = 0): Got<T> {
  const [state, setState] = useState<{ about: string; data?: T; error?: Problem; loading: boolean }>({ about: "", loading: true });
  const [again, setAgain] = useState(0);
  const address = path === null ? "" : href(path, query);
  const latest = useRef({ path, query });
  latest.current = { path, query };
  useEffect(() => {
    const { path, query } = latest.current;
    if (path === null) return;
    const stop = new AbortController();
    setState((old) => ({ about: path, loading: true, data: old.about === path ? old.data : undefined }));
    get<T>(path, query, stop.signal).then(
      (data) => setState({ about: path, data, loading: false }),
      (error: unknown) => {
        if (stop.signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem({ title: "The answer could not be read", detail: String(error) });
        setState({ about: path, error: problem, loading: false });
      },
    );
    return () => stop.abort();
  }, [address, again, version]);
  const reload = useCallback(() => setAgain((n) => n + 1), []);
  return { data: state.data, error: state.error, loading: path !== null && state.loading, reload };
}
