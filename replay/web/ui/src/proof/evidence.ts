// Evidence as a file: a bundle, or the proof of one record.

import type { Bytes } from "./bytes";
import { type Demands, type Verdict, verifyBundle } from "./bundle";
import { verifyRecord } from "./record";

/** Checks a file with the keys that are given, and no other. told learns how far the check of a bundle is, from 0 to 1. */
export function verifyFile(data: Bytes, demands: Demands, told?: (part: number) => Promise<void>): Promise<Verdict> {
  return data[0] === 0x7b ? verifyDocument(data, demands) : verifyBundle(data, demands, told);
}

async function verifyDocument(data: Bytes, { hosts, witnesses, quorum, since }: Demands): Promise<Verdict> {
  const texts = { hosts: hosts.map((k) => k.text), witnesses: witnesses.map((k) => k.text) };
  const { overall, text, offered } = await verifyRecord(data, undefined, texts, { quorum, since, strict: true });
  return { status: overall === "holds" ? 0 : overall === "fails" ? 1 : 2, finding: overall === "holds" ? "" : text, offered: offered?.key };
}
