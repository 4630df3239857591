import type { Panel, Screen } from "../registry";

/** The panels of a run's page, in the order of their tabs. */
export const panels: Panel[] = [
  { id: "state", title: "State", load: () => import("./state") },
  { id: "record", title: "Record", load: () => import("./record") },
  { id: "terminal", title: "Terminal", load: () => import("./terminal") },
  { id: "network", title: "Network", load: () => import("./network") },
  { id: "files", title: "Files", load: () => import("./files") },
  { id: "llm", title: "LLM", badge: (run) => run.detail.get().kinds.llm, load: () => import("./llm") },
  { id: "secrets", title: "Secrets", load: () => import("./secrets") },
  { id: "findings", title: "Findings", badge: (run) => run.detail.get().findings + run.detail.get().derived_findings || undefined, load: () => import("./findings") },
  { id: "changes", title: "Changes", load: () => import("./changes") },
];

/** The screens beside the list of runs and the run. */
export const screens: Screen[] = [];
