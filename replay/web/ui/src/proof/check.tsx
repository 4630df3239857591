import { useEffect, useState } from "preact/hooks";
import { useCell } from "../cell";
import { Badge, Copy } from "../components/basic";
import { Page } from "../panels/pages";
import { count, flat, plural } from "../text";
import type { Demands, Verdict } from "./bundle";
import { verifyFile } from "./evidence";
import { Keys } from "./keys";
import { cannotVerify, fingerprint, parseKey } from "./note";
import type { Report } from "./record";
import { trust } from "./trust";
import { overall, type Overall } from "./words";

const most = 1 << 30; // bytes that are read into memory

type Work = { state: "none" } | { state: "busy"; part: number } | { state: "done"; verdict: Verdict; offered: Report["offered"] };

/** Checks a bundle that the reader has as a file, in the browser: nothing of it is sent. */
export default function CheckScreen(_: { params: URLSearchParams }) {
  const believed = useCell(trust);
  const [file, setFile] = useState<File>();
  const [quorum, setQuorum] = useState<number>(); // all witnesses, unless the reader says otherwise
  const [work, setWork] = useState<Work>({ state: "none" });
  const needed = Math.min(quorum ?? believed.witnesses.length, believed.witnesses.length);
  useEffect(() => {
    if (!file) return;
    let over = false;
    const told = async (part: number) => {
      if (over) throw new Error("another file was chosen");
      setWork({ state: "busy", part });
      await new Promise((resolve) => setTimeout(resolve)); // the browser shows it
    };
    void check(file, needed, told).then((done) => { if (!over) setWork(done); });
    return () => { over = true; };
  }, [file, believed, needed]);
  return (
    <Page title="Check a bundle" lead="Checks whether the host signed this bundle, with the keys that you trust. The page does not send the file anywhere.">
      <Drop file={file} choose={setFile} />
      {work.state === "busy" && <Busy part={work.part} />}
      {work.state === "done" && <Result verdict={work.verdict} name={file?.name ?? ""} needed={needed} />}
      <div class="proof">
        <Keys offered={work.state === "done" ? work.offered : undefined}>Without the host's key a bundle cannot be judged.</Keys>
        {believed.witnesses.length > 0 && (
          <label>
            Witnesses that must have cosigned, of the {believed.witnesses.length} above{" "}
            <input type="number" min={1} max={believed.witnesses.length} value={needed} onInput={(e) => setQuorum(Math.max(1, Math.trunc(Number(e.currentTarget.value))))} />
          </label>
        )}
      </div>
    </Page>
  );
}

async function check(file: File, quorum: number, told: (part: number) => Promise<void>): Promise<Work> {
  const cannot = (finding: string): Work => ({ state: "done", verdict: { status: 2, finding }, offered: undefined });
  try {
    await told(0);
    const why = await cannotVerify();
    if (why) return cannot(why);
    if (file.size > most) return cannot("The file is larger than a browser can hold. Check it with custody verify.");
    const { hosts, witnesses } = trust.get();
    const demands: Demands = {
      hosts: await Promise.all(hosts.map(parseKey)), fleets: [], witnesses: await Promise.all(witnesses.map(parseKey)), quorum, within: 86400n,
    };
    const verdict = await verifyFile(new Uint8Array(await file.arrayBuffer()), demands, told);
    return { state: "done", verdict, offered: await offer(verdict.offered) };
  } catch (error) {
    return cannot(error instanceof Error ? error.message : String(error));
  }
}

/** The key that came with the bundle, if it is one. */
async function offer(text: string | undefined): Promise<Report["offered"]> {
  try {
    return text === undefined ? undefined : { key: text, fingerprint: await fingerprint(await parseKey(text)) };
  } catch {
    return undefined;
  }
}

/** A place for the file: to choose it, or to drop it. */
function Drop({ file, choose }: { file: File | undefined; choose: (file: File) => void }) {
  const take = (files: FileList | null | undefined) => { if (files?.[0]) choose(files[0]); };
  return (
    <div class="box drop" onDragOver={(e) => e.preventDefault()} onDrop={(e) => { e.preventDefault(); take(e.dataTransfer?.files); }}>
      <label for="bundle">A bundle, or the proof of one record</label>
      <input id="bundle" type="file" onChange={(e) => take(e.currentTarget.files)} />
      <p class="muted">{file ? <>Chosen: {flat(file.name)}. </> : <>Choose a file or drop it here. </>}</p>
    </div>
  );
}

function Busy({ part }: { part: number }) {
  return <div class="box loading" role="status" aria-busy="true"><span class="spinner" aria-hidden="true" />Checking, {Math.floor(100 * part)} %</div>;
}

const statuses: Overall[] = ["holds", "fails", "cannot"];

function Result({ verdict: v, name, needed }: { verdict: Verdict; name: string; needed: number }) {
  const which = statuses[v.status]!;
  const [tone] = overall[which];
  const words = ["It holds", "It does not hold", "It cannot be judged"][v.status];
  const text = v.finding ? v.finding.charAt(0).toUpperCase() + v.finding.slice(1) : "The host signed all records shown, and they are in the host's log.";
  return (
    <section class={`proof ${which}`} aria-label="Verdict">
      <div class="verdict" role="status" aria-live="polite">
        <Badge tone={tone}>{words}</Badge>
        <p>{flat(name)}: {flat(text)}</p>
      </div>
      {v.run !== undefined && <Facts verdict={v} needed={needed} />}
      <p class="muted small">
        Time stamps are not checked here, and neither are earlier checkpoints that you kept: <code>custody verify</code> does that, and says more of what is wrong.
      </p>
    </section>
  );
}

/** What the check found before it ended. */
function Facts({ verdict: v, needed }: { verdict: Verdict; needed: number }) {
  const rows: [string, string | undefined][] = [
    ["Run", v.run], ["Head", v.head], ["Records", v.records === undefined ? undefined : records(v)],
    ["Continues", v.lineage?.length ? v.lineage.join("; ") : undefined],
    ["Host's log", v.size === undefined ? undefined : plural(Number(v.size), "entry", "entries")],
    ["Witnesses", needed === 0 && !v.witnesses?.length ? undefined : v.witnesses && `${v.witnesses.length} of yours have cosigned, ${needed} needed${v.witnesses.length ? ": " + v.witnesses.join(", ") : ""}`],
  ];
  return (
    <dl class="facts wide">
      {rows.map(([label, value]) => value !== undefined && <div><dt>{label}</dt><dd class="wrap">{flat(value)} {label === "Head" && <Copy text={value} label="Copy the head" />}</dd></div>)}
    </dl>
  );
}

function records({ records = 0n, withheld = 0n, erased = 0n }: Verdict): string {
  return `${count(Number(records))}${withheld ? `, ${withheld} withheld` : ""}${erased ? `, ${erased} erased` : ""}`;
}
