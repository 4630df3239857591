import type { Tone } from "../components/basic";

/**
 * What came of a check. holds: under a key of the reader's. consistent: all fits, under a key that came with the
 * answer, which proves nothing about who made it. pending: what there is holds, the rest is not signed or logged
 * yet. cannot: it cannot be judged. fails: it does not hold.
 */
export type Overall = "holds" | "consistent" | "pending" | "cannot" | "fails";

export const overall: Record<Overall, [Tone, string]> = {
  holds: ["ok", "Proof holds"], consistent: ["warn", "Consistent only"], pending: ["busy", "Not finished yet"], cannot: ["warn", "Cannot be judged"], fails: ["bad", "Proof does not hold"],
};
