// The keys that a check believes: those that the reader pinned, and those to which statements of the
// pinned ones lead.

import { type Bytes, Malformed } from "./bytes";
import { type Key, type Note, idOf, keysById, parseNote, readHostKey, signed } from "./note";
import { instant, second } from "./instant";
import type { Kind } from "./shapes";
import { type Rotation, type Said, parseStatement } from "./statements";

/** In seconds: how long after its retirement a key may still begin a run, and how long before a rotation the new one may seal. */
export const grace = 600n;

/** A statement whose signature does not verify, or one that contradicts another. */
export class Forged extends Error {}

/** A witness's signature that is not over the checkpoint. */
export class ForgedCosignature extends Forged {}

/** Keys by how signatures name them. */
export type Keys = ReadonlyMap<string, Key>;

export interface Opened<K extends Kind> {
  said: Said[K];
  /** How the signature names its key. */
  by: string;
  /** That key, undefined if it is not known. */
  key: Key | undefined;
  note: Note;
}

export class Ring {
  readonly keys: Map<string, Key>;
  /** Statements of the keys that are believed, by the old key. */
  readonly next = new Map<string, Rotation>();
  /** Keys that statements retire and that are not trusted: they still show that what they signed was not altered. */
  readonly named = new Map<string, Key>();

  constructor(pinned: readonly Key[]) {
    this.keys = keysById(pinned);
  }

  knows(key: Key): boolean {
    return this.keys.has(idOf(key));
  }

  /** Reports whether a manifest states a sealing time before the rotation that leads to the key which signed it. */
  early(by: string, sealed: string): boolean {
    return this.links.some((r) => idOf(readHostKey(r.new)) === by && instant(sealed) < instant(r.time) - grace * second);
  }

  get links(): Rotation[] {
    return [...this.next.values()];
  }

  /** Takes up the keys to which the statements lead. One that begins with an unknown key leads nowhere, and is no finding. */
  async link(statements: readonly Bytes[]): Promise<void> {
    if (statements.length > 1000) throw new Malformed("too many rotations of keys");
    let left = [...statements];
    for (let before = -1; before !== left.length;) {
      before = left.length;
      const later: Bytes[] = [];
      for (const s of left) if (!(await this.#take(s))) later.push(s);
      left = later;
    }
  }

  /** Takes up the keys that roots of fleets state to be those of hosts. A statement of an unknown root has no effect. */
  async attest(roots: readonly Key[], statements: readonly Bytes[]): Promise<void> {
    if (statements.length > 1000) throw new Malformed("too many statements about hosts");
    const trusted = new Ring(roots);
    for (const s of statements) {
      const { said, key: root } = await trusted.open("host", s);
      const key = readHostKey(said.key);
      if (root && !this.knows(key)) this.keys.set(idOf(key), key);
    }
  }

  async #take(statement: Bytes): Promise<boolean> {
    const { said, by, key } = await this.open("rotation", statement);
    const old = readHostKey(said.old);
    if (idOf(old) !== by) throw new Forged("a rotation is not signed by the key that it retires");
    if (!key) {
      this.named.set(by, old);
      return false;
    }
    const before = this.next.get(by);
    if (before && (before.old !== said.old || before.new !== said.new || before.time !== said.time)) throw new Forged("a key has two successors");
    this.next.set(by, said);
    const next = readHostKey(said.new);
    this.keys.set(idOf(next), next);
    return true;
  }

  /** Reads a statement, which has exactly one signature. One that names a known key and is not its own is Forged. */
  async open<K extends Kind>(kind: K, data: Bytes): Promise<Opened<K>> {
    const note = parseNote(data, `the ${kind}`);
    const [signature, ...more] = note.signatures;
    if (!signature || more.length > 0) throw new Malformed(`the ${kind} has ${note.signatures.length} signatures, not one`);
    const by = idOf(signature);
    const key = this.keys.get(by);
    if (key && !(await signed(note, signature, key))) throw new Forged(`the ${kind} is not what ${signature.name} signed`);
    return { said: parseStatement(kind, note.text), by, key, note };
  }
}

/** A statement that a key of this name signed, which is believed. */
export async function openOf<K extends Kind>(ring: Ring, kind: K, data: Bytes, host: string): Promise<Said[K]> {
  const { said, key } = await ring.open(kind, data);
  if (!key || key.name !== host) throw new Forged(`the ${kind} is not signed by a key of ${host} that is trusted here`);
  return said;
}
