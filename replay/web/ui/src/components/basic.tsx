import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useCell } from "../cell";
import * as prefs from "../prefs";
import { clip, decode, flat, stretches } from "../text";
import { clock, full, parse, span, stamp } from "../time";
import type { Observer, Text } from "../types";

export const classes = (...names: (string | false | undefined | null)[]) => names.filter(Boolean).join(" ");

/**
 * Text that may be hostile: escapes visible, isolated from its surroundings, cut at limit characters
 * with a button for the rest. Use it for whatever the guest could have chosen.
 */
export function Words({ text, limit = 300, multiline = false, mono = true, class: name }: {
  text: Text | undefined | null;
  limit?: number;
  multiline?: boolean;
  mono?: boolean;
  class?: string | undefined;
}) {
  const [all, setAll] = useState(false);
  const whole = decode(text);
  const { text: some, cut } = clip(whole, all ? 1_000_000 : limit);
  return (
    <bdi dir="ltr" class={classes("words", mono && "mono", multiline && "multiline", name)}>
      {stretches(some, multiline).map((s) => (s.escape ? <span class="escape">{s.text}</span> : s.text))}
      {cut && !all && (
        <button type="button" class="link more" onClick={(e) => { e.stopPropagation(); setAll(true); }}>
          … show all {whole.length.toLocaleString("en-GB")} characters
        </button>
      )}
      {cut && all && <span class="escape">… cut at a million characters</span>}
    </bdi>
  );
}

export type Tone = "ok" | "bad" | "warn" | "info" | "plain" | "busy";

/** A word with a tone and a shape, so that colour is never alone. */
export function Badge({ tone = "plain", children, title }: { tone?: Tone; children: ComponentChildren; title?: string | undefined }) {
  return <span class={`badge ${tone}`} title={title}>{children}</span>;
}

/** Who saw it, in words. */
export function Seen({ by, short = false }: { by: Observer; short?: boolean }) {
  return by === "guest" ? (
    <span class="seen guest" title="Seen inside the VM: a claim of an untrusted kernel">{short ? "guest" : "guest claims"}</span>
  ) : (
    <span class="seen host" title="Seen by the host, outside the VM">{short ? "host" : "host saw"}</span>
  );
}

/** An instant, in the zone that the reader chose; the title has all nine digits in both zones. */
export function Time({ at, date = false, digits = 3 }: { at: string | undefined | null; date?: boolean; digits?: number }) {
  const zone = useCell(prefs.zone);
  if (!at) return <span class="muted">–</span>;
  const ms = parse(at);
  if (Number.isNaN(ms)) return <span class="mono">{clip(flat(at), 40).text}</span>;
  const title = `${full(at, "utc")}\n${full(at, "local")}`;
  return <time class="num" dateTime={at} title={title}>{date ? stamp(ms, zone, digits) : clock(ms, zone, digits)}</time>;
}

/** A length of time in nanoseconds. */
export function Length({ ns }: { ns: number | undefined }) {
  return ns === undefined ? <span class="muted">–</span> : <span class="num" title={`${ns.toLocaleString("en-GB")} ns`}>{span(ns / 1e6)}</span>;
}

/** A hash or digest: its beginning, the whole on hover and to copy. */
export function Hash({ value, length = 12 }: { value: string | undefined; length?: number }) {
  if (!value) return <span class="muted">–</span>;
  const whole = flat(value); // a guest may say anything in the place of a hash
  const short = clip(whole.replace(/^sha256[:-]/, ""), length).text;
  return <span class="hash"><code title={clip(whole, 200).text}>{short}…</code><Copy text={whole} label="Copy the whole hash" /></span>;
}

/** A button that copies text. */
export function Copy({ text, label = "Copy", words = "copy" }: { text: string; label?: string; words?: string }) {
  const [done, setDone] = useState("");
  const copy = async (e: Event) => {
    e.stopPropagation();
    try {
      await navigator.clipboard.writeText(text);
      setDone("copied");
    } catch {
      setDone("not allowed");
    }
    setTimeout(() => setDone(""), 1500);
  };
  return (
    <button type="button" class="copy" onClick={copy} aria-label={label} title={label}>
      <span aria-live="polite">{done || words}</span>
    </button>
  );
}

/** A list of names and values. */
export function Facts({ children }: { children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}
export function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
