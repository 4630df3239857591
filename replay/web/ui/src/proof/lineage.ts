// The lineage of a run: the records of the runs whose state it continues, from its parent to the root ancestor.

import { unpack } from "./archive";
import { type Bytes, Malformed, hex } from "./bytes";
import { Finding, check } from "./finding";
import { parseNote } from "./note";
import type { Parent } from "./scan";
import { sha256 } from "./sha256";
import { parseStatement } from "./statements";

/** What the check of one run, without its ancestors, has shown of the lineage. */
export interface Generation {
  run: string;
  parent?: Parent;
  /** The bundles of ancestors in its bundle, by the name of the file. */
  ancestors: Map<string, Bytes>;
  /** What leaves the question open. */
  doubt?: Finding;
}

/** How many ancestors are followed. */
const generations = 1000;

/** Follows the parents. It returns one line for each ancestor, and the first doubt. one checks the bundle of an ancestor. */
export async function follow(from: Generation, one: (data: Bytes) => Promise<Generation>): Promise<{ lines: string[]; doubt?: Finding }> {
  const lines: string[] = [];
  const left = new Map(from.ancestors);
  const seen = new Set([from.run]);
  let doubt = from.doubt;
  let ended = false;
  for (let parent = from.parent; parent; ) {
    const stated: Parent = parent;
    check(!seen.has(stated.run), `run ${stated.run} is its own ancestor`);
    seen.add(stated.run);
    const name = `${(lines.length + 1).toString().padStart(20, "0")}.ancestor`;
    const data = lines.length < generations ? left.get(name) : undefined;
    const line = `${stated.op} of ${stated.run}, last manifest ${stated.manifest}`;
    lines.push(data ? line : `${line}, whose record is not here`);
    if (!data) break;
    left.delete(name);
    const is = ending(data);
    const same = is.run === stated.run && is.seq === stated.seq && is.root === stated.root && is.manifest === stated.manifest;
    check(same, `the record of ${stated.run} is not the one that its child states`);
    const found = await within(stated.run, () => one(data));
    check(found.ancestors.size === 0, `the bundle of ancestor ${stated.run} has ancestors of its own`);
    doubt ??= found.doubt;
    parent = found.parent;
    ended = found.doubt !== undefined && !parent;
  }
  check(ended || left.size === 0, `files belong to nothing: ${[...left.keys()].slice(0, 10).join(", ")}`);
  return { lines, doubt };
}

/** Names the ancestor in its findings. One that cannot be judged is a doubt. */
async function within(run: string, one: () => Promise<Generation>): Promise<Generation> {
  const named = (text: string, status: 1 | 2) => new Finding(`ancestor ${run}: ${text}`, status);
  try {
    const found = await one();
    return { ...found, doubt: found.doubt && named(found.doubt.message, 2) };
  } catch (error) {
    if (!(error instanceof Finding)) throw error;
    if (error.status === 1) throw named(error.message, 1);
    return { run, ancestors: new Map(), doubt: named(error.message, 2) };
  }
}

/** What a child states of the run of this bundle. */
function ending(data: Bytes): Omit<Parent, "op"> {
  const name = [...unpack(data).files.keys()].filter((n) => /^[0-9]{20}\.manifest$/.test(n)).at(-1);
  const signed = name ? unpack(data).files.get(name) : undefined;
  if (!signed) throw new Malformed("the record of an ancestor has no manifest");
  const m = parseStatement("manifest", parseNote(signed, "the manifest").text);
  check(m.closing !== "", "the record of an ancestor is not closed");
  return { run: m.run, seq: m.last, root: m.root || "0".repeat(64), manifest: hex(sha256(signed)) };
}
