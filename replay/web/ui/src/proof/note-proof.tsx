import { useEffect, useState } from "preact/hooks";
import { getBytes, Problem } from "../api";
import { Badge } from "../components/basic";
import { can } from "../panels/shared";
import type { RunStore } from "../runstore";
import { flat } from "../text";
import type { NoteEvent, RunNote } from "../types";
import { overall, type Overall } from "./words";

type Work = { state: "none" | "busy" } | { state: "done"; overall: Overall; text: string } | { state: "error"; text: string };

/** A button that has the record which a note is checked here, in the browser, and the result. */
export function NoteProof({ run, note }: { run: RunStore; note: RunNote }) {
  const [work, setWork] = useState<Work>({ state: "none" });
  const ask = () => check(run, note).catch((e: unknown): Work => ({ state: "error", text: e instanceof Problem ? e.message : String(e) }));
  const pending = work.state === "done" && work.overall === "pending";
  useEffect(() => { // a new note has no checkpoint for some seconds
    if (!pending) return;
    let over = false;
    const timer = setTimeout(() => void ask().then((done) => { if (!over) setWork(done); }), 2000);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [work]);
  if (work.state === "done") {
    const [tone, title] = overall[work.overall];
    return <span role="status"><Badge tone={tone} title={flat(work.text)}>{title}</Badge>{work.overall === "fails" && <span class="bad"> {flat(work.text)}</span>}</span>;
  }
  if (work.state === "error") return <span role="alert" class="bad">{flat(work.text)}</span>;
  if (!can("auditor")) return <Badge title="Its segment is sealed, signed and in the store">signed</Badge>;
  const verify = async () => {
    setWork({ state: "busy" });
    setWork(await ask());
  };
  return <button type="button" class="link" disabled={work.state === "busy"} onClick={verify}>{work.state === "busy" ? "checking…" : "verify"}</button>;
}

async function check(run: RunStore, note: RunNote): Promise<Work> {
  const [document, { verifyRecord }, { cannotVerify }, { trust }] = await Promise.all([
    getBytes(run.path("notes", note.id, "proof")), import("./record"), import("./note"), import("./trust"),
  ]);
  const cannot = await cannotVerify();
  if (cannot) return { state: "done", overall: "cannot", text: cannot };
  const [log, seq] = note.id.split(":") as [string, string];
  const report = await verifyRecord(document, { run: log, seq: Number(seq) }, trust.get());
  if (report.record !== undefined && report.overall !== "fails" && !says(report.record, note)) {
    return { state: "done", overall: "fails", text: "The note that this page shows is not the one that was signed." };
  }
  return { state: "done", overall: report.overall, text: report.text };
}

/** Whether a record has what the page shows of the note. */
export function says(record: string, shown: RunNote): boolean {
  const signed = (JSON.parse(record) as { note?: NoteEvent }).note;
  const parts = (n: NoteEvent) => JSON.stringify([n.who, n.via, n.role ?? "", n.tenant ?? "", n.about, n.seq ?? 0, n.leaf ?? "", n.text ?? "", n.tags ?? [], n.withdraws ?? ""]);
  return signed !== undefined && parts(signed) === parts(shown);
}
