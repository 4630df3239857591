import type { Proc } from "../types";

/** A process in the tree. */
export interface ProcessRow {
  p: Proc;
  depth: number;
  /** It started others that are in the tree. */
  parents: boolean;
  /** What was looked for; otherwise it is shown for those below it. */
  found: boolean;
}

/**
 * The processes in the order of a tree: each below the one that started it, those of one parent in order of seq.
 * What a folded one started is left out. With `wanted` only those remain, and the ones above them. A process whose
 * parent is not in the list, or comes later in the record, is at the top.
 */
export function processRows(all: readonly Proc[], folded: ReadonlySet<number>, wanted?: (p: Proc) => boolean): ProcessRow[] {
  const known = new Map(all.map((p) => [p.seq, p]));
  const above = (p: Proc) => (p.parent_seq && p.parent_seq < p.seq ? known.get(p.parent_seq) : undefined);
  const found = new Set(wanted ? all.filter(wanted) : all);
  const shown = new Set(found);
  for (const p of found) for (let up = above(p); up && !shown.has(up); up = above(up)) shown.add(up);
  const below = new Map<Proc | undefined, Proc[]>();
  for (const p of [...shown].sort((a, b) => a.seq - b.seq)) {
    const list = below.get(above(p));
    if (list) list.push(p);
    else below.set(above(p), [p]);
  }
  const rows: ProcessRow[] = [];
  const stack = [...(below.get(undefined) ?? [])].reverse().map((p) => ({ p, depth: 0 }));
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { p, depth } = next;
    const children = below.get(p) ?? [];
    rows.push({ p, depth, parents: children.length > 0, found: found.has(p) });
    if (folded.has(p.seq) && !wanted) continue;
    for (let i = children.length - 1; i >= 0; i--) stack.push({ p: children[i]!, depth: depth + 1 });
  }
  return rows;
}
