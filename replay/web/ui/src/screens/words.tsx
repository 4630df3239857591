import { Badge, type Tone } from "../components/basic";
import { flat } from "../text";
import type { Mark, Run, Verification } from "../types";

// How a run's facts are said, everywhere alike.

export function Status({ run }: { run: Run & { live?: boolean } }) {
  if (run.status === "running") return <Badge tone="busy" title="Records are still being written">running</Badge>;
  if (run.status === "interrupted") return <Badge tone="warn" title="Custody or the machine died; the record was closed at the next start">interrupted</Badge>;
  return <Badge tone="plain" title="The run is over and its record is closed">{flat(run.status)}</Badge>;
}

/** How the work ended: its own result, not the record's. */
export function Result({ run }: { run: Run }) {
  if (run.status === "running") return <span class="muted">–</span>;
  if (run.status === "interrupted") return <span class="muted">–</span>;
  if (run.result && run.result !== "done") return <Badge tone={run.result === "cancelled" ? "plain" : "warn"}>{flat(run.result)}</Badge>;
  if (run.exit_code === null) return <span class="muted">no exit code</span>;
  return run.exit_code === 0 ? <span class="num">exit 0</span> : <Badge tone="warn">exit {run.exit_code}</Badge>;
}

const proofs: Record<Verification["state"], { tone: Tone; words: string; title: string }> = {
  holds: { tone: "ok", words: "proof holds", title: "Hashes, signatures and checkpoints were checked and agree with the record" },
  fails: { tone: "bad", words: "PROOF FAILS", title: "The record differs from what was sealed: do not rely on it" },
  unsigned: { tone: "bad", words: "NOTHING SIGNED", title: "The store has rows of this run without a signed record: do not rely on it" },
  cannot: { tone: "warn", words: "cannot be judged", title: "Something that the check needs is missing" },
  unchecked: { tone: "plain", words: "not checked yet", title: "This run's proof has not been checked since the server started" },
  checking: { tone: "busy", words: "checking…", title: "The proof is being checked" },
};

export function Proof({ verification }: { verification: Verification | undefined }) {
  const v = proofs[verification?.state ?? "unchecked"] ?? proofs.unchecked;
  return <Badge tone={v.tone} title={[v.title, verification?.text].filter(Boolean).join(". ")}>{v.words}</Badge>;
}

const marks: Record<Mark["state"], { tone: Tone; words: string }> = {
  fails: { tone: "bad", words: "NOT WHAT WAS SIGNED" },
  unsigned: { tone: "bad", words: "NOTHING SIGNED" },
  cannot: { tone: "warn", words: "cannot be judged" },
  unchecked: { tone: "warn", words: "not checked" },
};

/** A record's mark, if it has one. */
export function Marked({ mark }: { mark: Mark | undefined }) {
  if (!mark) return null;
  const { tone, words } = marks[mark.state] ?? marks.unchecked;
  return <><Badge tone={tone} title={flat(mark.text ?? "")}>{words}</Badge>{" "}</>;
}

/** How much an isolation tier promises, said out loud. */
export function Tier({ tier, note, quiet = false }: { tier: string; note?: string | undefined; quiet?: boolean }) {
  const weak = tier === "qemu-tcg" || tier === "host";
  const words = note || (tier === "qemu-tcg" ? "Software emulation: QEMU's project gives it no security promise" : tier === "host" ? "No isolation" : "");
  if (quiet) return <span class={weak ? "warn" : undefined} title={words || undefined}>{weak && <span aria-hidden="true">▲ </span>}{flat(tier) || "no tier"}</span>;
  return <Badge tone={weak ? "warn" : "plain"} title={words || undefined}>{flat(tier) || "no tier"}</Badge>;
}
