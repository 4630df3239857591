import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useCell } from "../cell";
import { Badge, Copy, Words } from "../components/basic";
import { fingerprint, isWitness, parseKey } from "./note";
import type { Report } from "./record";
import { pin, trust, unpin } from "./trust";

/** The keys that the check trusted, and a field for one's own. children explain what it means that there is none. */
export function Keys({ offered, children }: { offered: Report["offered"]; children: ComponentChildren }) {
  const { hosts, witnesses } = useCell(trust);
  return (
    <section class="trusted">
      <h3>Keys that you trust</h3>
      {hosts.length === 0 && (
        <p class="flag warn">
          <Badge tone="warn">No key of yours</Badge> {children} Ask the
          operator for the host's key over a separate trusted channel (the file <code>host.pub</code>, or <code>custody key show</code> on the host), compare the fingerprint, and pin it.
        </p>
      )}
      <ul class="plain-list">
        {hosts.map((k) => <Pinned key={k} text={k} who="hosts" />)}
        {witnesses.map((k) => <Pinned key={k} text={k} who="witnesses" />)}
      </ul>
      {offered && !hosts.includes(offered.key) && (
        <div class="offered">
          <p>Came with it: <Words text={offered.key} limit={120} /> <Copy text={offered.key} label="Copy the key" /></p>
          <p>Fingerprint <code class="fingerprint">{offered.fingerprint}</code></p>
          <p class="muted">On the host, or where you have a trusted copy of host.pub, this prints it: <code class="wrap">cut -d+ -f3- host.pub | base64 -d | tail -c 32 | sha256sum</code></p>
          <button type="button" onClick={() => pin("hosts", offered.key)}>I have compared the fingerprint: pin this key</button>
        </div>
      )}
      <PinForm />
    </section>
  );
}

function Pinned({ text, who }: { text: string; who: "hosts" | "witnesses" }) {
  const [print, setPrint] = useState("");
  useEffect(() => {
    parseKey(text).then(fingerprint).then(setPrint, () => setPrint("cannot be read: forget it"));
  }, [text]);
  return (
    <li class="pinned">
      <Badge tone="ok">{who === "hosts" ? "host" : "witness"}</Badge> <Words text={text.split("+")[0]} /> <code class="fingerprint">{print}</code>
      <button type="button" class="link" onClick={() => unpin(who, text)} aria-label={`Forget the key of ${text.split("+")[0]}`}>forget</button>
    </li>
  );
}

/** Takes a key that the reader pastes. */
function PinForm() {
  const [text, setText] = useState("");
  const [error, setError] = useState("");
  const submit = async (e: Event) => {
    e.preventDefault();
    try {
      const key = await parseKey(text);
      pin(isWitness(key) ? "witnesses" : "hosts", key.text);
      setText("");
      setError("");
    } catch (e) {
      setError(e instanceof Error ? e.message : String(e));
    }
  };
  return (
    <form class="pin" onSubmit={submit}>
      <label for="pin-key">Pin a key of a host or a witness</label>
      <input id="pin-key" value={text} onInput={(e) => setText(e.currentTarget.value)} placeholder="NAME+HASH+KEY" spellcheck={false} autocomplete="off"
        aria-invalid={error !== ""} aria-describedby="pin-help" required />
      <button type="submit">Pin</button>
      <p id="pin-help" class={error ? "bad" : "muted"} role={error ? "alert" : undefined}>{error || "One line, as in host.pub. It stays in this browser."}</p>
    </form>
  );
}
