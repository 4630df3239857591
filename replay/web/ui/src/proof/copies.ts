// The files of each copy into or out of the workspace, held against the root that its end gives.

import { type Bytes, concat, fromHex, hex, utf8 } from "./bytes";
import { leafHash, rootOf } from "./merkle";
import type { Copy } from "./scan";

interface Listed {
  leaves: Bytes[];
  bytes: bigint;
}

export class Copies {
  /** A list or an end contradicts what came before. */
  wrong = false;
  #open = new Map<string, Listed>(); // by direction

  take(c: Copy): void {
    if (c.op !== "list" && c.op !== "end") return;
    const listed = this.#open.get(c.direction) ?? { leaves: [], bytes: 0n };
    if (c.op === "end") {
      const fits = (c.count ?? 0n) === BigInt(listed.leaves.length) && (c.bytes ?? 0n) === listed.bytes && (c.root ?? "") === hex(rootOf(listed.leaves));
      if (!fits) this.wrong = true;
      this.#open.delete(c.direction);
      return;
    }
    this.#open.set(c.direction, listed);
    if ((c.first ?? 0n) !== BigInt(listed.leaves.length) || !/^[0-9a-fA-F]{32}$/.test(c.salt ?? "")) {
      this.wrong = true;
      return;
    }
    const salt = fromHex(c.salt!);
    for (const f of c.files ?? []) {
      const words = [f.path, f.as ?? "", f.mode, String(f.size), f.sha256 ?? "", f.link ?? ""];
      listed.leaves.push(leafHash(salt, concat(...words.map((w, i) => concat(utf8(i > 0 ? "\0" : ""), raw(w))))));
      listed.bytes = BigInt.asIntN(64, listed.bytes + f.size);
    }
  }
}

function raw(text: string | Bytes): Bytes {
  return typeof text === "string" ? utf8(text) : text;
}
