import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { classes } from "./basic";

export interface Column<R> {
  id: string;
  title: string;
  /** As in grid-template-columns: 8rem, minmax(10rem, 1fr). */
  width: string;
  cell: (row: R) => ComponentChildren;
  right?: boolean;
  /** Makes the column's head a button that sorts. */
  sort?: (a: R, b: R) => number;
}

export interface TableProps<R> {
  label: string;
  columns: Column<R>[];
  rows: R[];
  keyOf: (row: R) => string | number;
  /** The key of the row that is marked. It is scrolled into sight when it changes. */
  selected?: string | number | null;
  onSelect?: (row: R) => void;
  rowClass?: (row: R) => string | undefined;
  /** Height of a row in pixels; every row has the same. */
  height?: number;
  empty?: ComponentChildren;
  /** Called when the last rows come into sight. */
  onEnd?: () => void;
  foot?: ComponentChildren;
}

/**
 * A table of any length: only the rows in sight are in the page. Arrow keys, Page, Home and End move the
 * mark, Enter or a click selects. It fills its parent, which needs a height.
 */
export function Table<R>(props: TableProps<R>) {
  const { columns, keyOf, onSelect, height = 26 } = props;
  const [sort, setSort] = useState<{ id: string; down: boolean } | null>(null);
  const rows = useMemo(() => sorted(props.rows, columns, sort), [props.rows, sort]);
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const [mark, setMark] = useState(-1);

  useLayoutEffect(() => {
    const element = box.current!;
    const watcher = new ResizeObserver(() => setSeen((s) => ({ ...s, height: element.clientHeight })));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    const { style } = box.current!;
    style.setProperty("--columns", columns.map((c) => c.width).join(" "));
    // The head and each row are as wide as the narrowest columns at least, so that they stay in line.
    style.setProperty("--least", `calc(${columns.map((c) => /^minmax\(([^,]+),/.exec(c.width)?.[1] ?? c.width).map((w) => (w === "0" ? "0px" : w)).join(" + ")})`);
  }, [columns]);
  const at = useMemo(() => (props.selected == null ? -1 : rows.findIndex((r) => keyOf(r) === props.selected)), [rows, props.selected]);
  useLayoutEffect(() => {
    if (at < 0) return;
    setMark(at);
    reveal(at);
  }, [at]);

  const reveal = (index: number) => {
    const element = box.current!;
    const head = element.querySelector<HTMLElement>(".thead")?.offsetHeight ?? 0;
    const top = index * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight - head) element.scrollTop = top + height - element.clientHeight + head;
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(seen.height / height) - 2);
    const steps: Record<string, number> = {
      ArrowUp: mark - 1, ArrowDown: mark + 1, PageUp: mark - page, PageDown: mark + page, Home: 0, End: rows.length - 1,
    };
    if (e.target !== box.current) return;
    if (e.key === "Enter" && rows[mark]) onSelect?.(rows[mark]!);
    const next = steps[e.key];
    if (next === undefined || rows.length === 0) return;
    e.preventDefault();
    const index = Math.min(Math.max(next, 0), rows.length - 1);
    setMark(index);
    reveal(index);
  };
  const first = Math.max(0, Math.floor(seen.top / height) - 8);
  const last = Math.min(rows.length, Math.ceil((seen.top + seen.height) / height) + 8);
  useLayoutEffect(() => {
    if (last >= rows.length - 8) props.onEnd?.();
  }, [last, rows.length]);

  return (
    <div class="table" ref={box} tabIndex={0} role="grid" aria-label={props.label} aria-rowcount={rows.length + 1}
      aria-activedescendant={mark >= first && mark < last ? rowId(props.label, mark) : undefined}
      onKeyDown={onKeyDown} onScroll={(e) => setSeen({ top: e.currentTarget.scrollTop, height: e.currentTarget.clientHeight })}>
      <div class="thead" role="row" aria-rowindex={1}>
        {columns.map((c) => <Head column={c} sort={sort} setSort={setSort} />)}
      </div>
      <Space px={first * height} />
      {rows.slice(first, last).map((row, i) => {
        const index = first + i;
        return (
          <div key={keyOf(row)} id={rowId(props.label, index)} role="row" aria-rowindex={index + 2} aria-selected={index === at}
            class={classes("tr", index % 2 === 1 && "odd", index === mark && "mark", index === at && "selected", onSelect && "pick", props.rowClass?.(row))}
            onClick={() => { setMark(index); onSelect?.(row); }}>
            {columns.map((c) => <div role="gridcell" class={c.right ? "td right" : "td"}>{c.cell(row)}</div>)}
          </div>
        );
      })}
      <Space px={(rows.length - last) * height} />
      {rows.length === 0 && props.empty}
      {props.foot}
    </div>
  );
}

function Head<R>({ column: c, sort, setSort }: {
  column: Column<R>;
  sort: { id: string; down: boolean } | null;
  setSort: (sort: { id: string; down: boolean } | null) => void;
}) {
  const on = sort?.id === c.id;
  const order: JSX.AriaAttributes["aria-sort"] = on ? (sort.down ? "descending" : "ascending") : undefined;
  return (
    <div role="columnheader" class={c.right ? "td right" : "td"} aria-sort={order}>
      {c.sort ? (
        <button type="button" class="sort" onClick={() => setSort(on && sort.down ? null : { id: c.id, down: on })}>
          {c.title}<span aria-hidden="true">{on ? (sort.down ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : c.title}
    </div>
  );
}

/** Room for the rows that are out of sight. */
export function Space({ px }: { px: number }) {
  return px > 0 ? <div role="presentation" style={{ height: `${px}px` }} /> : null;
}

const rowId = (label: string, index: number) => `${label.replace(/[^A-Za-z0-9]/g, "-")}-${index}`;

function sorted<R>(rows: R[], columns: Column<R>[], sort: { id: string; down: boolean } | null): R[] {
  const by = sort && columns.find((c) => c.id === sort.id)?.sort;
  if (!by) return rows;
  return [...rows].sort((a, b) => (sort.down ? by(b, a) : by(a, b)));
}
