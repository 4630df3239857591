// Checks files as the page does, for the tests that hold it against custody verify. It reads lines from standard input:
//
//   FILE<TAB>--key<TAB>KEY<TAB>--fleet-key<TAB>KEY<TAB>--witness<TAB>KEY<TAB>--quorum<TAB>N<TAB>--since<TAB>FILE<TAB>--within<TAB>SECONDS
//
// and answers each with one line: the status, a space, and the finding. No line has to do with another.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { type Bytes, Malformed } from "./bytes";
import type { Demands, Verdict } from "./bundle";
import { verifyFile } from "./evidence";
import { asWitness, keysById, readHostKey, readKey } from "./note";

const mostSeconds = 9223372036; // as long as a duration of custody verify can be

const bytes = (file: string): Bytes => new Uint8Array(readFileSync(file));

function demands(options: string[]): Demands {
  const all: Demands = { hosts: [], fleets: [], witnesses: [], quorum: 0, within: 86400n };
  const hosts = [];
  const fleets = [];
  const witnesses = [];
  for (let i = 0; i < options.length; i += 2) {
    const [option, value] = [options[i]!, options[i + 1] ?? ""];
    if (option === "--key") hosts.push(readHostKey(value));
    else if (option === "--fleet-key") fleets.push(readHostKey(value));
    else if (option === "--witness") witnesses.push(readKey(value));
    else if (option === "--since") all.since = bytes(value);
    else if (option === "--quorum" && /^[0-9]{1,9}$/.test(value)) all.quorum = Number(value);
    else if (option === "--within" && /^[1-9][0-9]{0,9}$/.test(value) && Number(value) <= mostSeconds) all.within = BigInt(value);
    else throw new Malformed(`it was asked for in a way that is not known: ${option} ${value}`);
  }
  const given = keysById(witnesses.map(asWitness)).size;
  if (all.quorum > given) throw new Malformed(`a quorum of ${all.quorum}, and ${given} witnesses`);
  return { ...all, hosts, fleets, witnesses, quorum: all.quorum || given };
}

async function answer(line: string): Promise<Pick<Verdict, "status" | "finding">> {
  const [file = "", ...options] = line.split("\t");
  let asked: Demands;
  let data: Bytes;
  try {
    asked = demands(options);
    data = bytes(file);
  } catch (error) {
    return { status: 2, finding: String(error) };
  }
  try {
    return await verifyFile(data, asked);
  } catch (error) {
    return { status: 2, finding: `the check failed: ${error instanceof Error ? error.stack : String(error)}` };
  }
}


for await (const line of createInterface({ input: process.stdin })) {
  const { status, finding } = await answer(line);
  console.log(`${status} ${(finding || "holds").replace(/\s+/g, " ")}`);
}
