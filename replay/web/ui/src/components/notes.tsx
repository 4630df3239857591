import { useRef, useState } from "preact/hooks";
import { Problem } from "../api";
import { useCell } from "../cell";
import { readTags } from "../notes";
import { NoteProof } from "../proof/note-proof";
import { can } from "../panels/shared";
import type { RunStore } from "../runstore";
import { Marked } from "../screens/words";
import { flat, plural } from "../text";
import type { RunNote } from "../types";
import { Badge, Time, Words } from "./basic";
import { ErrorBox } from "./boxes";

/** The notes on a record, or for seq 0 on the whole run, and a form for another one. */
export function NotesOn({ run, seq }: { run: RunStore; seq: number }) {
  const known = useCell(run.notes.notes);
  const notes = run.notes.of(seq);
  const about = seq ? `record ${seq}` : "the run";
  return (
    <div class="notes">
      {known?.error && <ErrorBox error={known.error} retry={() => void run.notes.read()} />}
      {known?.partial && !known.error && <p class="flag warn">This run has more notes: the oldest are not shown.</p>}
      {notes.length > 0 && <ul class="note-list" aria-label={`Notes on ${about}`}>{notes.map((n) => <Note key={n.id} run={run} n={n} />)}</ul>}
      {can("auditor") ? <Write run={run} seq={seq} about={about} /> : notes.length === 0 && <p class="muted">No notes on {about}. The role auditor can.</p>}
    </div>
  );
}

function Note({ run, n }: { run: RunStore; n: RunNote }) {
  return (
    <li class={n.withdrawn ? "note withdrawn" : "note"}>
      <p class="note-head"><strong><Words text={n.who} mono={false} limit={80} /></strong> <span class="muted">by {flat(n.via)}{n.role ? `, ${flat(n.role)}` : ""}</span> <Time at={n.time} date digits={0} />
        {" "}{n.state === "recorded" ? <Badge tone="busy" title="It is durable in the host's log; its segment is not in the store yet">being signed</Badge> : <NoteProof run={run} note={n} />}</p>
      {n.text && <p class="note-text"><Words text={n.text} mono={false} multiline limit={4200} /></p>}
      <Tags tags={n.tags} />
      {n.verification && <p class="flag bad"><Marked mark={n.verification} />{flat(n.verification.text ?? "")}</p>}
      {n.bound === "other" && <p class="flag bad">This note was written about another record than the one that now stands at {n.seq}: the store was changed.</p>}
      {n.bound === "missing" && <p class="flag bad">The record that this note is about is not in the store.</p>}
      {n.withdrawn
        ? <p class="muted">Withdrawn by <Words text={n.withdrawn.who} mono={false} limit={80} /> <Time at={n.withdrawn.time} date digits={0} />{n.withdrawn.text && <>: <Words text={n.withdrawn.text} mono={false} limit={4200} /></>}</p>
        : can("auditor") && n.state === "stored" && <Withdraw run={run} n={n} />}
    </li>
  );
}

/** Tags as a reader sees them. */
export function Tags({ tags }: { tags: string[] | undefined }) {
  if (!tags?.length) return null;
  return <p class="tags">{tags.map((t) => <span class="tag">#{flat(t)}</span>)}</p>;
}

/** Sends the form, and shows what was wrong with it. */
function useSend() {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Problem | null>(null);
  const send = async (what: () => Promise<void>): Promise<boolean> => {
    setBusy(true);
    setError(null);
    try {
      await what();
      return true;
    } catch (e) {
      setError(e instanceof Problem ? e : new Problem({ detail: String(e) }));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, error, send };
}

function Write({ run, seq, about }: { run: RunStore; seq: number; about: string }) {
  const [text, setText] = useState("");
  const [typed, setTyped] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const { busy, error, send } = useSend();
  const { tags, error: bad } = readTags(typed);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (busy || bad || (!text.trim() && tags.length === 0)) return;
    if (await send(() => run.notes.write({ ...(seq ? { seq } : {}), text, tags }))) {
      setText("");
      setTyped("");
      field.current?.focus(); // the button is disabled now, and would lose it
    }
  };
  return (
    <form class="note-form" onSubmit={submit} aria-label={`Note something on ${about}`}>
      <label>Note on {about} <textarea ref={field} rows={2} maxLength={4096} value={text} onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void submit(e); }} /></label>
      <label>Tags <input value={typed} placeholder="case-7 exfil" autocomplete="off" spellcheck={false} aria-invalid={bad ? "true" : undefined} onInput={(e) => setTyped(e.currentTarget.value)} /></label>
      <button type="submit" disabled={busy || Boolean(bad) || (!text.trim() && tags.length === 0)}>{busy ? "Writing…" : "Sign the note"}</button>
      {bad && <p class="bad small" role="alert">{bad}</p>}
      {error && <ErrorBox error={error} />}
      <p class="muted small">It is signed with your name in the host's access log, and stays: it can be withdrawn, not changed.</p>
    </form>
  );
}

function Withdraw({ run, n }: { run: RunStore; n: RunNote }) {
  const [open, setOpen] = useState(false);
  const [why, setWhy] = useState("");
  const { busy, error, send } = useSend();
  if (!open) return <button type="button" class="link" onClick={() => setOpen(true)}>withdraw</button>;
  const submit = (e: Event) => {
    e.preventDefault();
    void send(() => run.notes.write({ withdraws: n.id, text: why }));
  };
  return (
    <form class="note-form" onSubmit={submit}>
      <label>Why it is withdrawn <input value={why} maxLength={4096} autocomplete="off" onInput={(e) => setWhy(e.currentTarget.value)} /></label>
      <button type="submit" disabled={busy}>Withdraw the note</button>
      <button type="button" class="link" onClick={() => setOpen(false)}>keep it</button>
      {error && <ErrorBox error={error} />}
    </form>
  );
}

/** The notes on the run as a whole, in its header. */
export function RunNotes({ run }: { run: RunStore }) {
  const known = useCell(run.notes.notes);
  const all = (known?.list ?? []).filter((n) => !n.withdrawn);
  const records = new Set(all.filter((n) => n.seq).map((n) => n.seq)).size;
  return (
    <details class="drop run-notes" onKeyDown={(e) => {
      if (e.key !== "Escape") return;
      e.currentTarget.open = false;
      e.currentTarget.querySelector("summary")?.focus();
    }}>
      <summary class="button">{all.length ? plural(all.length, "note") : "Notes"}</summary>
      <div class="pop small">
        {records > 0 && <p>{plural(records, "record")} with notes: choose “noted” above the list to see only these.</p>}
        <NotesOn run={run} seq={0} />
      </div>
    </details>
  );
}
