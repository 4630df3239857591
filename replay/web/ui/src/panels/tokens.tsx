import { useState } from "preact/hooks";
import { del, post, Problem, useGet } from "../api";
import { Badge, Copy, Time, Words } from "../components/basic";
import { Empty, ErrorBox, Loaded } from "../components/boxes";
import type { Role } from "../types";
import { Page } from "./pages";
import { can, Needs } from "./shared";

interface Token {
  id: string;
  name: string;
  tenant: string;
  role: Role;
  created: string;
  expires: string;
  used?: string;
}

const roles: [Role, string][] = [
  ["viewer", "sees runs"], ["auditor", "and verifies, exports and reports"], ["operator", "and operates runs"], ["admin", "and gives out tokens"],
];

/** Tokens of this tenant for programs and people, by admins. */
export default function TokensScreen(_: { params: URLSearchParams }) {
  const may = can("admin");
  const got = useGet<{ tokens: Token[] }>(may ? "/tokens" : null);
  return (
    <Page title="Tokens" lead="Logins for programs, and for people without an organisation's login. Custody stores only a hash of a token: it is shown once.">
      {!may ? <Needs role="admin" what="The list of tokens" /> : (
        <>
          <Make made={got.reload} />
          <Loaded got={got} what="Fetching the tokens">{(d) => (d.tokens.length ? <List tokens={d.tokens} changed={got.reload} /> : <Empty title="There are no tokens">Make one above, or with <code>custody token new</code> on the host.</Empty>)}</Loaded>
        </>
      )}
    </Page>
  );
}

function Make({ made }: { made: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [days, setDays] = useState(90);
  const [token, setToken] = useState("");
  const [error, setError] = useState<Problem | null>(null);
  const submit = async (e: Event) => {
    e.preventDefault();
    setError(null);
    try {
      const answer = await post<{ token: string }>("/tokens", { name: name.trim(), role, ttl_seconds: Math.round(days * 86_400) });
      setToken(answer.token);
      setName("");
      made();
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
  };
  return (
    <>
      <form class="search-form" onSubmit={submit}>
        <label class="grow">Name <input value={name} required maxLength={64} placeholder="user or purpose" onInput={(e) => setName(e.currentTarget.value)} autocomplete="off" /></label>
        <label>Role <select value={role} onChange={(e) => setRole(e.currentTarget.value as Role)}>{roles.map(([id, words]) => <option value={id}>{id}: {words}</option>)}</select></label>
        <label>Days <input type="number" min={1} max={366} value={days} onInput={(e) => setDays(Number(e.currentTarget.value))} /></label>
        <button type="submit" class="primary">Make a token</button>
      </form>
      {error && <ErrorBox error={error} />}
      {token && (
        <div class="box made" role="status">
          <strong>The token, for this once</strong>
          <p><code class="wrap">{token}</code> <Copy text={token} label="Copy the token" /></p>
          <p class="muted">It is valid immediately. Send it as <code>Authorization: Bearer …</code>, or paste it at the login.</p>
          <button type="button" onClick={() => setToken("")}>I have it</button>
        </div>
      )}
    </>
  );
}

function List({ tokens, changed }: { tokens: Token[]; changed: () => void }) {
  const [sure, setSure] = useState("");
  const [error, setError] = useState<Problem | null>(null);
  const remove = async (id: string) => {
    if (sure !== id) {
      setSure(id);
      return;
    }
    try {
      await del(`/tokens/${encodeURIComponent(id)}`);
      setError(null);
      changed();
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
  };
  return (
    <>
      {error && <ErrorBox error={error} />}
      <table class="wide-table">
        <thead><tr><th scope="col">Name</th><th scope="col">Id</th><th scope="col">Role</th><th scope="col">Made</th><th scope="col">Expires</th><th scope="col">Last used</th><th scope="col"><span class="sr">Remove</span></th></tr></thead>
        <tbody>{tokens.map((t) => (
          <tr key={t.id}>
            <th scope="row"><Words text={t.name} mono={false} limit={80} /></th><td class="mono">{t.id}</td><td><Badge tone={t.role === "admin" ? "warn" : "plain"}>{t.role}</Badge></td>
            <td><Time at={t.created} date digits={0} /></td><td><Time at={t.expires} date digits={0} />{Date.parse(t.expires) < Date.now() && <> <Badge tone="warn">over</Badge></>}</td>
            <td>{t.used ? <Time at={t.used} date digits={0} /> : <span class="muted">never</span>}</td>
            <td><button type="button" onClick={() => remove(t.id)} onBlur={() => setSure("")}>{sure === t.id ? "Sure? It stops working immediately" : "Remove"}</button></td>
          </tr>
        ))}</tbody>
      </table>
    </>
  );
}
