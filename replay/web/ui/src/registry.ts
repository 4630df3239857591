import type { ComponentType } from "preact";
import type { RunStore } from "./runstore";
import type { Role } from "./types";

/** A panel of a run's page, a tab beside the list of records. Its code is loaded when it is first shown. */
export interface Panel {
  id: string; // in the address: panel=ID
  title: string;
  /** A number to show beside the title, such as how many findings there are. */
  badge?: (run: RunStore) => number | undefined;
  load: () => Promise<{ default: ComponentType<{ run: RunStore }> }>;
}

/** A screen of its own: #/ROUTE?params. */
export interface Screen {
  route: string;
  title: string;
  /** In the bar at the top; otherwise it is reached by links only. */
  nav: boolean;
  /** The least role that may see it. */
  role: Role;
  /** Only in the bar of a server that has them. */
  needs?: "sandboxes";
  load: () => Promise<{ default: ComponentType<{ params: URLSearchParams }> }>;
}
