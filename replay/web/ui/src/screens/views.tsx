import { useEffect, useRef, useState } from "preact/hooks";
import { del, get, post, Problem, put, tenant } from "../api";
import { useCell } from "../cell";
import { Words } from "../components/basic";
import { ErrorBox, Loading } from "../components/boxes";
import { place, to } from "../router";

interface View {
  id: string;
  name: string;
  address: string;
  saved: string;
}

/** What the reader saved of the page: a menu that opens, saves, renames and removes. The server keeps it for this reader alone. */
export function Views() {
  const box = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  const name = useCell(tenant);
  const close = () => {
    if (!box.current?.open) return;
    box.current.open = false;
    box.current.querySelector("summary")?.focus();
  };
  return (
    <details class="drop views" ref={box} onToggle={(e) => setOpen(e.currentTarget.open)} onKeyDown={(e) => { if (e.key === "Escape") close(); }}>
      <summary class="button">Views</summary>
      <div class="pop small">{open && <Menu key={name} close={close} />}</div>
    </details>
  );
}

function Menu({ close }: { close: () => void }) {
  const [views, setViews] = useState<View[]>();
  const [error, setError] = useState<Problem | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const read = async () => setViews((await get<{ views: View[] }>("/views")).views);
  const change = async (what: () => Promise<unknown>): Promise<boolean> => {
    setError(null);
    try {
      await what();
      await read();
      return true;
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
      return false;
    }
  };
  useEffect(() => void change(async () => undefined), []);
  const save = async (e: Event) => {
    e.preventDefault();
    const input = field.current;
    if (!input?.value.trim()) return;
    if (await change(() => post<View>("/views", { name: input.value.trim(), address: here() }))) input.value = "";
    input.focus();
  };
  return (
    <>
      {!views && !error && <Loading what="Reading your views" />}
      {views?.length === 0 && <p class="muted">You have saved none. A view is this page as the address bar has it: screen, filters, run and instant.</p>}
      {views && views.length > 0 && <ul class="view-list" aria-label="Saved views">{views.map((v) => <Saved key={v.id} view={v} change={change} close={close} />)}</ul>}
      <form class="view-form" onSubmit={save}>
        <label>Save this view as <input ref={field} maxLength={80} autocomplete="off" /></label>
        <button type="submit">Save</button>
      </form>
      {error && <ErrorBox error={error} />}
    </>
  );
}

function Saved({ view, change, close }: { view: View; change: (what: () => Promise<unknown>) => Promise<boolean>; close: () => void }) {
  const [renaming, setRenaming] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const own = view.address.startsWith("#/"); // the server keeps no other
  const rename = async (e: Event) => {
    e.preventDefault();
    const name = field.current?.value.trim();
    if (name && (await change(() => put(`/views/${view.id}`, { name, address: view.address })))) setRenaming(false);
  };
  if (renaming) {
    return (
      <li><form class="view-form" onSubmit={rename}>
        <label>New name <input ref={field} defaultValue={view.name} maxLength={80} autocomplete="off" /></label>
        <button type="submit">Rename</button><button type="button" class="link" onClick={() => setRenaming(false)}>leave it</button>
      </form></li>
    );
  }
  return (
    <li>
      {own ? <a href={view.address} onClick={close}><Words text={view.name} mono={false} /></a> : <Words text={view.name} mono={false} />}
      <button type="button" class="link" onClick={() => setRenaming(true)} aria-label={`Rename ${view.name}`}>rename</button>
      <button type="button" class="link" onClick={() => void change(() => del(`/views/${view.id}`))} aria-label={`Remove ${view.name}`}>remove</button>
    </li>
  );
}

/** The address of what is shown, written as the page writes addresses. */
function here(): string {
  const { path, params } = place.get();
  return to(path.length ? path : ["runs"], Object.fromEntries(params));
}
