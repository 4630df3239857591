import type { Panel, Screen } from "../registry";
import { guarded } from "./guard";

/** The panels of a run's page, in the order of their tabs. */
export const panels: Panel[] = [
  { id: "state", title: "State", load: () => import("./state").then(guarded) },
  { id: "record", title: "Record", load: () => import("./record").then(guarded) },
  { id: "processes", title: "Processes", load: () => import("./processes").then(guarded) },
  { id: "terminal", title: "Terminal", load: () => import("./terminal").then(guarded) },
  { id: "network", title: "Network", load: () => import("./network").then(guarded) },
  { id: "files", title: "Files", load: () => import("./files").then(guarded) },
  { id: "llm", title: "LLM", badge: (run) => run.detail.get().kinds.llm, load: () => import("./llm").then(guarded) },
  { id: "secrets", title: "Secrets", load: () => import("./secrets").then(guarded) },
  { id: "findings", title: "Findings", badge: (run) => run.detail.get().findings + run.detail.get().derived_findings || undefined, load: () => import("./findings").then(guarded) },
  { id: "changes", title: "Changes", load: () => import("./changes").then(guarded) },
];

/** The screens beside the list of runs and the run. */
export const screens: Screen[] = [
  { route: "search", title: "Search", nav: true, role: "viewer", load: () => import("./search").then(guarded) },
  { route: "findings", title: "Findings", nav: true, role: "viewer", load: () => import("./allfindings").then(guarded) },
  { route: "compare", title: "Compare", nav: true, role: "viewer", load: () => import("./compare").then(guarded) },
  { route: "check", title: "Check", nav: true, role: "viewer", load: () => import("../proof/check").then(guarded) },
  { route: "sandboxes", title: "Sandboxes", nav: true, role: "viewer", needs: "sandboxes", load: () => import("./sandboxes").then(guarded) },
  { route: "reports", title: "Reports", nav: true, role: "auditor", load: () => import("./reports").then(guarded) },
  { route: "exports", title: "Exports", nav: true, role: "auditor", load: () => import("./exports").then(guarded) },
  { route: "access", title: "Access", nav: true, role: "auditor", load: () => import("./access").then(guarded) },
  { route: "tokens", title: "Tokens", nav: true, role: "admin", load: () => import("./tokens").then(guarded) },
];
