import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Which rows of a long list are in sight, when every row has the same height. */
export interface Sight {
  box: { current: HTMLDivElement | null };
  first: number;
  last: number; // not included
  page: number; // rows that fit
  onScroll: () => void;
  /** Scrolls so that a row is in sight; with `middle`, to the middle unless it is. */
  reveal: (index: number, middle?: boolean) => void;
}

const spare = 10;

export function useWindow(size: number, height: number, head: number): Sight {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ top: 0, height: 600 });
  const look = () => {
    if (!box.current) return; // a list that is gone may still be sent the end of a scroll
    const { scrollTop: top, clientHeight } = box.current;
    setSeen((s) => (s.top === top && s.height === clientHeight ? s : { top, height: clientHeight }));
  };
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  const first = Math.max(0, Math.min(Math.floor(seen.top / height), size) - spare);
  const last = Math.min(size, Math.ceil((seen.top + seen.height) / height) + spare);
  const reveal = (index: number, middle = false) => {
    const element = box.current;
    if (!element) return;
    const top = index * height;
    const room = element.clientHeight - head;
    if (top >= element.scrollTop && top + height <= element.scrollTop + room) return;
    if (middle) element.scrollTop = Math.max(0, top - room / 2);
    else element.scrollTop = top < element.scrollTop ? top : top + height - room;
  };
  return { box, first, last, page: Math.max(1, Math.floor((seen.height - head) / height) - 1), onScroll: look, reveal };
}
