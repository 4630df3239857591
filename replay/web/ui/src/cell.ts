import { useEffect, useState } from "preact/hooks";

/** A value that can be watched. Setting the value that it has notifies no watcher. */
export class Cell<T> {
  private value: T;
  private watchers = new Set<(value: T) => void>();

  constructor(value: T) {
    this.value = value;
  }

  get(): T {
    return this.value;
  }

  set(value: T): void {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** Calls watcher at every change until the returned function is called. */
  watch(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

/** The cell's value, and a new rendering whenever it changes. */
export function useCell<T>(cell: Cell<T>): T {
  const [, redraw] = useState({});
  useEffect(() => {
    let seen = cell.get();
    redraw({}); // it may have changed between the rendering and this
    return cell.watch((value) => {
      if (!Object.is(seen, value)) {
        seen = value;
        redraw({});
      }
    });
  }, [cell]);
  return cell.get();
}

/** Resolves when the page is visible: a hidden page makes no requests, as every request is recorded. */
export function looked(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const change = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", change);
      resolve();
    };
    document.addEventListener("visibilitychange", change);
  });
}

/** A cell that follows another once it has not changed for so many milliseconds. */
export function settle<T>(cell: Cell<T>, ms: number): { cell: Cell<T>; stop: () => void } {
  const settled = new Cell(cell.get());
  let timer: ReturnType<typeof setTimeout> | undefined;
  const unwatch = cell.watch((value) => {
    clearTimeout(timer);
    timer = setTimeout(() => settled.set(value), ms);
  });
  return {
    cell: settled,
    stop: () => {
      clearTimeout(timer);
      unwatch();
    },
  };
}
