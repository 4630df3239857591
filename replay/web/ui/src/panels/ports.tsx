import { useState } from "preact/hooks";
import { get, post, Problem } from "../api";
import { ErrorBox } from "../components/boxes";
import type { Port, PortLogin } from "../types";

/** A button that lists the ports of a sandbox, each with one that opens it in a new tab. */
export function PortOpener({ sandbox }: { sandbox: string }) {
  const [ports, setPorts] = useState<Port[] | null>(null);
  const [error, setError] = useState<Problem | null>(null);
  const at = `/sandboxes/${encodeURIComponent(sandbox)}/ports`;
  const attempt = async (what: () => Promise<void>) => {
    setError(null);
    try {
      await what();
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
    }
  };
  const list = () => attempt(async () => setPorts((await get<{ ports: Port[] }>(at)).ports));
  const open = (port: number) => attempt(async () => {
    const tab = window.open("", "_blank"); // now: after the answer, the browser takes it for a pop-up
    try {
      const { url } = await post<PortLogin>(`${at}/${port}/login`);
      if (!tab) throw new Problem({ detail: "the browser does not open a new tab", hint: "allow pop-ups for this page" });
      tab.opener = null; // the sandbox gets no way to this page
      tab.location.replace(url);
    } catch (e) {
      tab?.close();
      throw e;
    }
  });
  return (
    <>
      {" "}<button type="button" aria-label={`Open a port of ${sandbox}`} onClick={list}>Open</button>
      {ports && (ports.length === 0 ? <div class="muted" role="status">No process listens on a port.</div> : (
        <div role="group" aria-label={`Ports of ${sandbox}`}>
          {ports.map((p) => <button type="button" key={p.port} onClick={() => open(p.port)} aria-label={`Open port ${p.port} of ${sandbox} in a new tab`}>{p.port} ↗</button>)}
        </div>
      ))}
      {error && <ErrorBox error={error} />}
    </>
  );
}
