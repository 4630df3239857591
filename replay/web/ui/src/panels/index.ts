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
export const screens: Screen[] = [
  { route: "search", title: "Search", nav: true, role: "viewer", load: () => import("./search") },
  { route: "findings", title: "Findings", nav: true, role: "viewer", load: () => import("./allfindings") },
  { route: "compare", title: "Compare", nav: true, role: "viewer", load: () => import("./compare") },
  { route: "reports", title: "Reports", nav: true, role: "auditor", load: () => import("./reports") },
  { route: "exports", title: "Exports", nav: true, role: "auditor", load: () => import("./exports") },
  { route: "access", title: "Access", nav: true, role: "auditor", load: () => import("./access") },
  { route: "tokens", title: "Tokens", nav: true, role: "admin", load: () => import("./tokens") },
];
