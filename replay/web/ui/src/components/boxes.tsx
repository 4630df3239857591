import type { ComponentChildren } from "preact";
import type { Got, Problem } from "../api";

/** There is nothing, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="box empty" role="status"><strong>{title}</strong>{children && <p>{children}</p>}</div>;
}

/** Something is on its way. */
export function Loading({ what = "Loading" }: { what?: string }) {
  return <div class="box loading" role="status" aria-busy="true"><span class="spinner" aria-hidden="true" />{what}…</div>;
}

/** It did not work, why, and what to do. */
export function ErrorBox({ error, retry }: { error: Problem; retry?: (() => void) | undefined }) {
  return (
    <div class="box error" role="alert">
      <strong>{error.title || "This did not work"}</strong>
      {error.message !== error.title && <p>{error.message}</p>}
      {error.hint && <p class="hint">{error.hint}</p>}
      {retry && !hopeless(error.status) && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

/** The same question would get the same answer. */
const hopeless = (status: number) => status >= 400 && status < 500 && status !== 408 && status !== 429;

/** The state of a useGet: loading, error, or what children make of the data. */
export function Loaded<T>({ got, what, children }: { got: Got<T>; what?: string; children: (data: T) => ComponentChildren }) {
  if (got.error) return <ErrorBox error={got.error} retry={got.reload} />;
  if (got.data === undefined) return <Loading what={what ?? "Loading"} />;
  return <div class={got.loading ? "stale" : undefined} aria-busy={got.loading}>{children(got.data)}</div>;
}
