import type { ComponentChildren } from "preact";
import { session, tenant } from "../api";
import { Badge, Copy, Words, classes, type Tone } from "../components/basic";
import { to, toRecord } from "../router";
import type { RunStore } from "../runstore";
import { may } from "../screens/bar";
import { command } from "../text";
import type { Actor, Role, Text, Verdict } from "../types";

/** A link to a record of the run that is shown. It moves the cursor where the time is known. */
export function Seq({ run, seq, time, children, label }: {
  run: RunStore;
  seq: number;
  time?: string | undefined;
  children?: ComponentChildren;
  label?: string;
}) {
  if (!seq) return <span class="muted">–</span>;
  const open = (e: MouseEvent) => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return; // a page of its own
    e.preventDefault();
    e.stopPropagation();
    run.open(seq, time, "record");
  };
  return <a class="seq" href={toRecord(run.name, seq, "record")} onClick={open} {...(children ? { title: label ?? `Record ${seq}` } : { "aria-label": label ?? `Record ${seq}` })}>{children ?? `#${seq}`}</a>;
}

/** A command line of custody that gives the same answer. */
export function Command({ line }: { line: string }) {
  return <div class="command"><code>{line}</code><Copy text={line} label="Copy the command" /></div>;
}

/** A part of a panel with its heading and, beside it, how many things there are. */
export function Section({ title, n, note, children }: { title: string; n?: number | undefined; note?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <section class="part-of-panel">
      <h2>{title}{n !== undefined && <span class="count">{n.toLocaleString("en-GB")}</span>}{note && <span class="h-note">{note}</span>}</h2>
      {n === 0 ? <p class="muted none">None.</p> : children}
    </section>
  );
}

/** A process as the guest's sensor names it. */
export function By({ run, by }: { run: RunStore; by: Actor | undefined }) {
  if (!by) return <span class="muted">–</span>;
  const who = <><Words text={by.name || "process"} limit={40} />{by.pid ? `[${by.pid}]` : ""}</>;
  return (
    <span class="by">
      {by.seq ? <Seq run={run} seq={by.seq} label={`Record ${by.seq}, which started this process`}>{who}</Seq> : who}
      {by.child && <span class="muted" title="It never called execve: named after its parent"> (child)</span>}
    </span>
  );
}

/** A verdict in a word, with a shape and a colour. */
export function VerdictBadge({ verdict, state }: { verdict: Verdict | undefined; state?: string | undefined }) {
  if (state === "revoke") return <Badge tone="warn">revoked</Badge>;
  if (verdict === "deny") return <Badge tone="bad">denied</Badge>;
  if (verdict === "allow") return <Badge tone="ok">allowed</Badge>;
  return <Badge tone="plain">{state === "attempt" ? "claimed only" : "no verdict"}</Badge>;
}

/** A command line, as a shell would need it. */
export function Argv({ argv, limit = 200 }: { argv: Text[] | null | undefined; limit?: number }) {
  return argv?.length ? <Words text={command(argv)} limit={limit} /> : <span class="muted">no arguments</span>;
}

/** The role of who is signed in, for the tenant that is looked at. */
export function roleNow(): Role {
  const who = session.get();
  const name = tenant.get();
  return who?.grants?.find((g) => g.tenant === name)?.role ?? who?.role ?? "viewer";
}

export function can(least: Role): boolean {
  return may(roleNow(), least);
}

/** Names the role that is missing, in place of a button that would not work. */
export function Needs({ role, what }: { role: Role; what: string }) {
  return <p class="needs muted">{what} needs the role {role}; yours is {roleNow()}. An admin can give it to you.</p>;
}

/** A choice among a few, as buttons of which one is pressed. */
export function Choice<T extends string>({ name, value, options, set }: {
  name: string;
  value: T;
  options: readonly (readonly [T, string])[];
  set: (value: T) => void;
}) {
  return (
    <div class="choice" role="group" aria-label={name}>
      {options.map(([id, title]) => (
        <button type="button" aria-pressed={id === value} class={classes(id === value && "on")} onClick={() => set(id)}>{title}</button>
      ))}
    </div>
  );
}

/** A field that filters what is shown. */
export function FilterField({ label, value, set, placeholder }: { label: string; value: string; set: (value: string) => void; placeholder?: string }) {
  return (
    <label class="filter-field"><span class="sr">{label}</span>
      <input type="search" value={value} placeholder={placeholder ?? label} onInput={(e) => set(e.currentTarget.value)} spellcheck={false} autocomplete="off" />
    </label>
  );
}

/** A link that searches all runs for something. */
export function SearchFor({ by, value, children }: { by: "hash" | "host" | "path" | "argv" | "secret" | "rule"; value: string; children?: ComponentChildren }) {
  return <a class="search-for" href={to(["search"], { [by]: value })}>{children ?? "in all runs"}</a>;
}

/** A number with its meaning, in a row of such. */
export function Figure({ name, tone, children }: { name: string; tone?: Tone; children: ComponentChildren }) {
  return <div class={classes("figure", tone)}><span class="value">{children}</span><span class="name">{name}</span></div>;
}
