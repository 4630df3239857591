import { useState } from "preact/hooks";
import { useCell } from "../cell";
import { Copy } from "../components/basic";
import { readMoment } from "../moment";
import * as prefs from "../prefs";
import { to } from "../router";
import type { RunStore } from "../runstore";
import { flat } from "../text";

/** A field for a time: the cursor goes there, and the panel shows the run's state at it. */
export function Jump({ run }: { run: RunStore }) {
  const zone = useCell(prefs.zone);
  const [text, setText] = useState("");
  const [error, setError] = useState("");
  const submit = (e: Event) => {
    e.preventDefault();
    const found = readMoment(text, zone, { began: run.began, end: run.wall(run.end.get()) });
    setError(flat(found.error ?? ""));
    if (found.error !== undefined) return;
    run.moveTo(found.ms);
    run.show("state");
  };
  return (
    <form class="jump" onSubmit={submit} noValidate>
      <label class="inline">Go to
        <input type="text" value={text} maxLength={60} spellcheck={false} autocomplete="off" enterkeyhint="go" placeholder="14:32:07"
          aria-label={`Go to a time, ${zone === "utc" ? "UTC" : "local time"}`} aria-invalid={error !== ""} aria-describedby={error ? "jump-error" : undefined}
          title="A time of day, a date and a time, or an offset from the start such as +7s"
          onInput={(e) => { setText(e.currentTarget.value); setError(""); }} />
      </label>
      <button type="submit">Go</button>
      {error && <span id="jump-error" class="bad" role="alert">{error}</span>}
    </form>
  );
}

/** Copies an address that opens the run at the cursor, and at the record that is looked at. */
export function LinkHere({ run }: { run: RunStore }) {
  const at = useCell(run.settled);
  const seq = useCell(run.seq);
  const panel = useCell(run.panel);
  const here = to(["runs", run.name], { seq: seq || undefined, at: run.at(at), panel: panel || undefined });
  return <Copy text={location.origin + location.pathname + here} label="Copy link to this moment" words="copy link" />;
}
