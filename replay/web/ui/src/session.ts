import { session, tenant } from "./api";
import type { Session } from "./types";

/** Shows the page to a principal that has signed in. If it has access to several tenants, the first is shown. */
export function enter(who: Session): void {
  if ((who.grants?.length ?? 0) > 1) choose(who, who.grants[0]!.tenant);
  else {
    tenant.set(undefined);
    session.set(who);
  }
}

/** Changes to another tenant, with the role that is granted there. */
export function choose(who: Session, name: string): void {
  tenant.set(name);
  session.set({ ...who, tenant: name, role: who.grants.find((g) => g.tenant === name)?.role ?? "viewer" });
}
