/** Why evidence does not hold (status 1), or cannot be judged (status 2). */
export class Finding extends Error {
  constructor(message: string, readonly status: 1 | 2 = 1) {
    super(message);
  }
}

/** Ends the check with a finding unless ok. */
export function check(ok: unknown, finding: string, status: 1 | 2 = 1): asserts ok {
  if (!ok) throw new Finding(finding, status);
}
