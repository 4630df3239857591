import type { Panel, Screen } from "../registry";

/** The panels of a run's page, in the order of their tabs. */
export const panels: Panel[] = [];

/** The screens beside the list of runs and the run. */
export const screens: Screen[] = [];
