import { useEffect, useState } from "preact/hooks";
import { get, post, Problem } from "../api";
import { Cell, useCell } from "../cell";
import { ErrorBox } from "../components/boxes";
import { enter } from "../session";
import type { Health, Session } from "../types";

/** Why the one-time link was refused: it was used, or it is too old. */
const refused = new Cell<Problem | null>(null);

/**
 * Signs in with the token of #once=TOKEN, behind which a place of the page may stand (/runs/RUN?at=+1s). The
 * token leaves the address bar and the history before anything else happens, and goes nowhere but into
 * this one request.
 */
export async function once(): Promise<void> {
  const [, token, rest] = /^#once=([^/?#]+)(\/.*)?$/.exec(location.hash) ?? [];
  if (!token) return;
  history.replaceState(null, "", `${location.pathname}#${rest ?? "/runs"}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
  try {
    enter(await post<Session>("/session", { token: decodeURIComponent(token) }));
    refused.set(null);
  } catch (e) {
    // A session may be there already, which goes on; if not, the login page gives the reason.
    refused.set(e instanceof Problem ? e : new Problem({ detail: String(e) }));
  }
}

/** Asks for a token, or leads to the organisation's login. */
export function Login() {
  const [token, setToken] = useState("");
  const link = useCell(refused);
  const [error, setError] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [health, setHealth] = useState<Health | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    get<Health>("/health", {}, stop.signal).then(setHealth, () => undefined);
    return () => stop.abort();
  }, []);
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    refused.set(null);
    try {
      enter(await post<Session>("/session", { token: token.trim() }));
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="center login">
      <h1>Custody</h1>
      <p>The record of what agents did, for review.</p>
      {link && <ErrorBox error={new Problem({ title: "The link did not sign you in", detail: link.message, hint: link.hint })} />}
      {health?.oidc && <p><a class="button primary" href="/oidc/login">Sign in with your organisation</a></p>}
      <form onSubmit={submit}>
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="off" spellcheck={false} value={token} required
          onInput={(e) => setToken(e.currentTarget.value)} aria-describedby="token-help" />
        <button type="submit" class={health?.oidc ? "" : "primary"} disabled={busy}>{busy ? "Signing in…" : "Sign in"}</button>
        <p id="token-help" class="muted">
          Open the address that <code>custody serve</code> printed (good once, for ten minutes), or make a token
          with <code>custody token new</code> and paste it here.
        </p>
      </form>
      {error && <ErrorBox error={error} />}
    </main>
  );
}
