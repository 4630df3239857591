// The keys that a check believes: those that the reader pinned, and those to which statements of the
// pinned ones lead.

import { type Bytes, Malformed, utf8 } from "./bytes";
import { type Key, type Note, parseKey, parseNote, signed } from "./note";
import { type Rotation, parseRotation } from "./statements";

/** A statement, signed by somebody whose signature is not what it says, or one that contradicts another. */
export class Forged extends Error {}

export class Ring {
  #keys = new Map<string, Key>();
  #next = new Map<string, string>(); // by the old key
  readonly links: Rotation[] = [];

  constructor(pinned: readonly Key[]) {
    for (const key of pinned) this.#keys.set(name(key.name, key.id), key);
  }

  find(who: string, id: Bytes): Key | undefined {
    return this.#keys.get(name(who, id));
  }

  knows(key: Key): boolean {
    return this.find(key.name, key.id) !== undefined;
  }

  get keys(): Key[] {
    return [...this.#keys.values()];
  }

  /** Takes up the keys to which the statements lead. One that begins with an unknown key leads nowhere, and is no finding. */
  async link(statements: readonly string[]): Promise<void> {
    let left = [...statements];
    for (let before = -1; before !== left.length;) {
      before = left.length;
      const later: string[] = [];
      for (const s of left) if (!(await this.#take(s))) later.push(s);
      left = later;
    }
  }

  async #take(statement: string): Promise<boolean> {
    const note = parseNote(utf8(statement), "a rotation");
    const rotation = parseRotation(note.text);
    const old = await parseKey(rotation.old);
    const next = await parseKey(rotation.new);
    if (next.name !== old.name) throw new Forged("a rotation leads to a key of another name");
    const by = await this.signer(note, "the rotation");
    const signature = note.signatures[0]!;
    if (name(signature.name, signature.id) !== name(old.name, old.id)) throw new Forged("a rotation is not signed by the key that it retires");
    if (!by) return false;
    const before = this.#next.get(rotation.old);
    if (before !== undefined && before !== rotation.new) throw new Forged("a key has two successors");
    this.#next.set(rotation.old, rotation.new);
    this.#keys.set(name(next.name, next.id), next);
    this.links.push(rotation);
    return true;
  }

  /**
   * The key that signed a note which has exactly one signature; undefined if nobody here knows it.
   * A signature that names a known key and is not its own is Forged.
   */
  async signer(note: Note, what: string): Promise<Key | undefined> {
    if (note.signatures.length !== 1) throw new Malformed(`${what} has ${note.signatures.length} signatures, not one`);
    const signature = note.signatures[0]!;
    const key = this.find(signature.name, signature.id);
    if (key && !(await signed(note, signature, key))) throw new Forged(`${what} is not what ${signature.name} signed`);
    return key;
  }
}

function name(who: string, id: Bytes): string {
  return who + "\n" + id.join(".");
}
