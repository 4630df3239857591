// The keys that the user trusts, kept in this browser. They are public; that they were not changed here is
// as certain as that the browser was not changed.

import { Cell } from "../cell";
import type { Trust } from "./record";

const place = "custody.trust";

/** Whom the reader believes. */
export const trust = new Cell<Trust>(kept());

trust.watch((value) => {
  try {
    localStorage.setItem(place, JSON.stringify(value));
  } catch {
    // storage is forbidden: the keys last as long as the page
  }
});

function kept(): Trust {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(place) ?? "null");
    if (typeof value === "object" && value !== null) {
      const { hosts, witnesses } = value as Partial<Record<keyof Trust, unknown>>;
      return { hosts: strings(hosts), witnesses: strings(witnesses) };
    }
  } catch {
    // nothing is kept, or it is not of our writing
  }
  return { hosts: [], witnesses: [] };
}

function strings(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((v): v is string => typeof v === "string").slice(0, 100) : [];
}

/** Adds a key, which has been read with parseKey. */
export function pin(who: keyof Trust, key: string): void {
  const now = trust.get();
  if (!now[who].includes(key)) trust.set({ ...now, [who]: [...now[who], key] });
}

export function unpin(who: keyof Trust, key: string): void {
  const now = trust.get();
  trust.set({ ...now, [who]: now[who].filter((k) => k !== key) });
}
