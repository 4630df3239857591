import type { ComponentChildren } from "preact";
import { href, session } from "../api";
import { useCell } from "../cell";
import type { RunStore } from "../runstore";
import { may } from "../screens/bar";

/** A link that downloads a bundle: of the whole run, or of its records from one seq to another. It needs the role auditor; without it there is nothing. */
export function Bundle({ run, from, to, children }: { run: RunStore; from?: number | undefined; to?: number | undefined; children: ComponentChildren }) {
  const who = useCell(session);
  if (!who || !may(who.role, "auditor")) return null;
  return (
    <a class="button bundle" download href={href(run.path("bundle"), { from_seq: from, to_seq: to })}
      title="Records, proofs and keys in one file, which custody verify checks anywhere">{children}</a>
  );
}
