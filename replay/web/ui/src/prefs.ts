import { Cell } from "./cell";
import type { Zone } from "./time";

// What a reader chose, kept in the browser. Storage may be forbidden; then nothing is kept.

function kept(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // the choice lasts as long as the page
  }
}

export type Theme = "system" | "dark" | "light";

/** The zone that times are shown in. */
export const zone = new Cell<Zone>(kept("custody.zone") === "local" ? "local" : "utc");
zone.watch((value) => keep("custody.zone", value));

const was = kept("custody.theme");
export const theme = new Cell<Theme>(was === "dark" || was === "light" ? was : "system");
theme.watch((value) => keep("custody.theme", value));

/** Whether the page is dark now, which a canvas has to know. */
export const dark = new Cell(true);

/** Puts the theme on the document and follows the system's. */
export function applyTheme(): void {
  const system = matchMedia("(prefers-color-scheme: light)");
  const apply = () => {
    const light = theme.get() === "light" || (theme.get() === "system" && system.matches);
    document.documentElement.dataset.theme = light ? "light" : "dark";
    dark.set(!light);
  };
  system.addEventListener("change", apply);
  theme.watch(apply);
  apply();
}
