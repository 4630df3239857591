import { useState } from "preact/hooks";
import { del, Problem, session, tenant, useGet } from "../api";
import { useCell } from "../cell";
import * as prefs from "../prefs";
import { flat } from "../text";
import { choose } from "../session";
import type { Screen } from "../registry";
import { place, to } from "../router";
import type { Health, Role } from "../types";
import { Views } from "./views";

const ranks: Role[] = ["viewer", "auditor", "operator", "admin"];
/** Whether a role may what another may. */
export const may = (role: Role, least: Role) => ranks.indexOf(role) >= ranks.indexOf(least);

/** The bar at the top: where one can go, whose record it is, how times and colours are shown. */
export function Bar({ screens }: { screens: Screen[] }) {
  const who = useCell(session);
  const { path } = useCell(place);
  const zone = useCell(prefs.zone);
  const theme = useCell(prefs.theme);
  const name = useCell(tenant);
  const health = useGet<Health>(who ? "/health" : null).data;
  const here = path[0] ?? "runs";
  if (!who) return null;
  const role = who.role;
  return (
    <header class="bar">
      <a class="brand" href={to(["runs"])}>Custody</a>
      <nav aria-label="Screens">
        <a href={to(["runs"])} aria-current={here === "runs" ? "page" : undefined}>Runs</a>
        {screens.filter((s) => s.nav && may(role, s.role) && (!s.needs || health?.[s.needs])).map((s) => (
          <a href={to([s.route])} aria-current={here === s.route ? "page" : undefined}>{s.title}</a>
        ))}
      </nav>
      <Views />
      <span class="spring" />
      {(who.grants?.length ?? 0) > 1 && (
        <label class="inline">Tenant
          <select value={name} onChange={(e) => choose(who, e.currentTarget.value)}>
            {who.grants.map((g) => <option value={g.tenant}>{flat(g.tenant) || "(none)"}</option>)}
          </select>
        </label>
      )}
      <button type="button" onClick={() => prefs.zone.set(zone === "utc" ? "local" : "utc")} title="Switch between UTC and this machine's zone"
        aria-label={`Times are shown in ${zone === "utc" ? "UTC" : "local time"}; switch`}>
        {zone === "utc" ? "UTC" : "Local time"}
      </button>
      <label class="inline"><span class="sr">Theme</span>
        <select value={theme} onChange={(e) => prefs.theme.set(e.currentTarget.value as prefs.Theme)}>
          <option value="system">System</option><option value="dark">Dark</option><option value="light">Light</option>
        </select>
      </label>
      <Who name={who.name} role={role} />
    </header>
  );
}

function Who({ name, role }: { name: string; role: Role }) {
  const [error, setError] = useState("");
  const out = async () => {
    try {
      await del("/session");
      session.set(null);
    } catch (e) {
      setError(e instanceof Problem ? e.message : String(e));
    }
  };
  return (
    <span class="who">
      <span title="Signed in as, with the role">{flat(name)} · {role}</span>
      <button type="button" class="link" onClick={out}>Sign out</button>
      {error && <span role="alert" class="bad">{error}</span>}
    </span>
  );
}
