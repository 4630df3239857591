import type { ComponentChildren } from "preact";
import { classes } from "../components/basic";

/** A stretch of time that something lasted. */
export interface Stretch {
  from: number;
  to: number;
  mood: "ok" | "deny" | "revoke" | "claim" | "promise" | "life";
  open?: boolean;
}

/** An instant. */
export interface Mark {
  at: number;
  mood: "question" | "request" | "deny" | "use" | "mint" | "revoke" | "cursor";
}

/**
 * Stretches and instants on one line of time. The label says in words what is drawn; shapes differ, not colours
 * alone: what was denied is hatched, what is open fades out, questions are dots, requests are strokes.
 */
export function Bars({ from, to, stretches, marks = [], label, tall = false }: { from: number; to: number; stretches: Stretch[]; marks?: Mark[]; label: string; tall?: boolean }) {
  const place = (at: number) => Math.min(100, Math.max(0, (100 * (at - from)) / (to - from || 1)));
  return (
    <span class={classes("bars", tall && "tall")} role="img" aria-label={label} title={label}>
      {stretches.map((s) => {
        const left = place(s.from);
        const where = { left: `${left}%`, width: `${Math.max(0, place(s.to) - left)}%` };
        return <span class={classes("stretch", `s-${s.mood}`, s.open && "open")} style={where} />;
      })}
      {marks.map((m) => <span class={`instant i-${m.mood}`} style={{ left: `${place(m.at)}%` }} />)}
    </span>
  );
}

/** A word about something, in brackets of its own. */
export function Argument({ children }: { children: ComponentChildren }) {
  return <span class="argument">{children}</span>;
}
