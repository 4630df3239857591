// The exact text of a record out of an answer of the API: what JSON.parse and JSON.stringify make of it need
// not be the bytes that were hashed.

import { href } from "../api";

/** The text of member "record" in the text of an answer; undefined if it has none. */
export function recordText(answer: string): string | undefined {
  const start = /^\{"seq":\d+,"record":/.exec(answer);
  if (!start) return undefined;
  const from = start[0].length;
  let depth = 0;
  let quoted = false;
  for (let i = from; i < answer.length; i++) {
    const c = answer[i];
    if (quoted) {
      if (c === "\\") i++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if (c === "{" || c === "[") depth++;
    else if ((c === "}" || c === "]") && --depth === 0) return answer.slice(from, i + 1);
  }
  return undefined;
}

/** Asks for a record again, as text. */
export async function exactRecord(path: string): Promise<string | undefined> {
  const response = await fetch(href(path), { headers: { Accept: "application/json" }, credentials: "same-origin", redirect: "error", cache: "no-store" });
  return response.ok ? recordText(await response.text()) : undefined;
}
