// Checkpoints of the host's log, and who signed and cosigned them.

import { type Bytes, Malformed } from "./bytes";
import { type Key, type Note, cosignedAt, idOf, parseNote, signed } from "./note";
import { Forged, ForgedCosignature, type Keys } from "./ring";
import { type Checkpoint, parseCheckpoint } from "./statements";

export interface SignedCheckpoint extends Checkpoint {
  note: Note;
  /** Witnesses that are trusted and have cosigned it, and when, in seconds since 1970. */
  cosigned: { name: string; at: bigint }[];
}

/** Reads a checkpoint that has to be of the host's log and signed by one of these keys. Each signature of a known key has to be good. */
export async function openCheckpoint(data: Bytes, host: string, keys: Keys, witnesses: Keys): Promise<SignedCheckpoint> {
  const note = parseNote(data, "the checkpoint");
  const c: SignedCheckpoint = { ...parseCheckpoint(note.text), note, cosigned: [] };
  let own = false;
  for (const s of note.signatures) {
    const id = idOf(s);
    const key: Key | undefined = witnesses.get(id) ?? keys.get(id);
    if (!key) continue;
    if (!(await signed(note, s, key))) throw new (witnesses.has(id) ? ForgedCosignature : Forged)(`the checkpoint is not what ${s.name} signed`);
    own ||= s.name === host && !witnesses.has(id);
    if (witnesses.has(id) && !keys.has(id)) c.cosigned.push({ name: s.name, at: cosignedAt(s) });
  }
  if (c.origin !== host) throw new Malformed("the checkpoint is another log's");
  if (!own) throw new Forged(`the checkpoint is not signed by a key of ${host} that is trusted here`);
  return c;
}

const lastSecond = 253402300799n; // the end of the year 9999, the last that RFC 3339 can write

/** When so many witnesses had cosigned, or all that did if they are fewer. */
export function cosignedBy(c: SignedCheckpoint, quorum: number): bigint | undefined {
  const times = c.cosigned.map((w) => (w.at < lastSecond ? w.at : lastSecond)).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  return times[Math.min(Math.max(quorum, 1), times.length) - 1];
}
