import { Cell } from "./cell";

/** Where the page is: #/runs/RUN?seq=4 has the path ["runs", "RUN"]. */
export interface Place {
  path: string[];
  params: URLSearchParams;
}

export function read(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(unescape), params: new URLSearchParams(query) };
}

function unescape(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export type Params = Record<string, string | number | undefined | null>;

/** The address of a place within the page; parameters without a value are left out. */
export function to(path: string[], params: Params = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return "#/" + path.map(encodeURIComponent).join("/") + (text ? "?" + text : "");
}

/** The address of a record of a run. */
export const toRecord = (run: string, seq: number, panel?: string) => to(["runs", run], { seq, panel });

export const place = new Cell<Place>({ path: [], params: new URLSearchParams() });

/** Follows the address bar. */
export function start(): void {
  const follow = () => place.set(read(location.hash));
  addEventListener("hashchange", follow);
  follow();
}

/** Goes to an address; replace leaves no trace in the history. */
export function go(address: string, replace = false): void {
  if (address === location.hash) return;
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  place.set(read(address));
}

/** Changes parameters of the place that is shown, without a step in the history. before learns what they will be. */
export function amend(params: Params, before?: (params: string) => void): void {
  const { path, params: old } = read(location.hash);
  const address = to(path, { ...Object.fromEntries(old), ...params });
  before?.(read(address).params.toString());
  go(address, true);
}
