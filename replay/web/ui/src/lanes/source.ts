import type { Problem } from "../api";
import type { Lanes } from "../types";

/** The lanes of a run as far as they are loaded. */
export interface Source {
  data: Lanes | undefined; // of the visible range and its surroundings
  whole: Lanes | undefined; // of the whole run, with less detail
  error: Problem | undefined;
  reload: () => void;
}
