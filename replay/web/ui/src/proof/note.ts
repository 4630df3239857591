// Signed notes (C2SP signed-note) and the keys that sign them: Ed25519 of hosts (type 1) and
// cosignatures of witnesses (C2SP tlog-cosignature, type 4).

import { type Bytes, Malformed, concat, equal, fromBase64, fromUtf8, hex, utf8 } from "./bytes";
import { sha256 } from "./sha256";

const hostKind = 1;
const witnessKind = 4;
const maxNote = 1 << 20;

/** A public key in the form of a signed note: NAME+HASH+KEY. */
export interface Key {
  text: string;
  name: string;
  /** How signatures name it: four bytes of SHA-256 over name and key. */
  id: Bytes;
  kind: number;
  public: Bytes;
}

const keyForm = /^([!-*,-~]{1,100})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/;
const signatureLine = /^— ([!-*,-~]{1,100}) ([A-Za-z0-9+/]+={0,2})$/;

/** Reads NAME+HASH+KEY in its one form; the hash must be that of name and key. */
export function readKey(text: string): Key {
  const found = keyForm.exec(text);
  if (!found) throw new Malformed("a public key is one line: NAME+HASH+KEY, as in host.pub");
  const [, name, id, encoded] = found as unknown as [string, string, string, string];
  const raw = fromBase64(encoded, "the key");
  const kind = raw[0];
  if (kind !== hostKind && kind !== witnessKind) throw new Malformed("the key is not an Ed25519 key");
  const computed = keyId(name, raw);
  if (hex(computed) !== id) throw new Malformed("the key's hash does not belong to its name and key: it was copied wrongly");
  return { text, name, id: computed, kind, public: raw.slice(1) };
}

function keyId(name: string, raw: Bytes): Bytes {
  return sha256(concat(utf8(name + "\n"), raw)).slice(0, 4);
}

/** Reads a key that signs as a host does. */
export function readHostKey(text: string): Key {
  const key = readKey(text);
  if (key.kind !== hostKind) throw new Malformed(`${key.name} is the key of a witness`);
  return key;
}

/** The key of a witness, which may be written as one of a host's kind. */
export function asWitness(key: Key): Key {
  return { ...key, kind: witnessKind, id: keyId(key.name, concat(new Uint8Array([witnessKind]), key.public)) };
}

/** Reads a key that a person pasted. */
export async function parseKey(text: string): Promise<Key> {
  return readKey(text.trim());
}

/** Keys by how signatures name them. Two that signatures name alike cannot be judged. */
export function keysById(keys: readonly Key[]): Map<string, Key> {
  const all = new Map<string, Key>();
  for (const key of keys) {
    const other = all.get(idOf(key));
    if (other && !equal(other.public, key.public)) throw new Error(`two keys of the name ${key.name} have the same hash`);
    all.set(idOf(key), key);
  }
  return all;
}

/** How signatures name the key, as text. */
export function idOf(key: { name: string; id: Bytes }): string {
  return `${key.name}+${hex(key.id)}`;
}

/** What a person compares: SHA-256 of the key's 32 bytes, in groups of four hex digits. */
export async function fingerprint(key: Key): Promise<string> {
  return hex(sha256(key.public)).replace(/(.{4})(?=.)/g, "$1 ");
}

/** A parsed note. Its signatures are not verified yet. */
export interface Note {
  text: string;
  signatures: Signature[];
}

export interface Signature {
  name: string;
  id: Bytes;
  bytes: Bytes;
}

/** Takes a note apart: lines of text, an empty line, 1 to 100 signature lines, and nothing else. No key signs twice. */
export function parseNote(data: Bytes, what: string): Note {
  if (data.length > maxNote) throw new Malformed(`${what} has ${data.length} bytes`);
  const whole = fromUtf8(data, what);
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u0009\u000b-\u001f]/.test(whole)) throw new Malformed(`${what} holds control characters`);
  const cut = whole.indexOf("\n\n");
  if (cut < 1 || !whole.endsWith("\n") || cut + 2 >= whole.length) throw new Malformed(`${what} is not a signed note`);
  const lines = whole.slice(cut + 2, -1).split("\n");
  if (lines.length > 100) throw new Malformed(`${what} has ${lines.length} signatures`);
  const signatures = lines.map((line) => parseSignature(line, what));
  if (new Set(signatures.map(idOf)).size < signatures.length) throw new Malformed(`a key signs ${what} twice`);
  return { text: whole.slice(0, cut + 1), signatures };
}

function parseSignature(line: string, what: string): Signature {
  const found = signatureLine.exec(line);
  if (!found) throw new Malformed(`${what} has a line among its signatures that is none`);
  const raw = fromBase64(found[2]!, `a signature of ${what}`);
  if (raw.length < 5) throw new Malformed(`a signature of ${what} is too short`);
  return { name: found[1]!, id: raw.slice(0, 4), bytes: raw.slice(4) };
}

/** Signatures of a note that name this key. */
export function by(note: Note, key: Key): Signature[] {
  return note.signatures.filter((s) => s.name === key.name && equal(s.id, key.id));
}

/** Reports whether the signature is the key's over the note. */
export async function signed(note: Note, signature: Signature, key: Key): Promise<boolean> {
  if (key.kind === hostKind) return ed25519(key.public, utf8(note.text), signature.bytes);
  if (signature.bytes.length !== 72) return false;
  const time = cosignedAt(signature);
  const message = concat(utf8(`cosignature/v1\ntime ${time}\n`), utf8(note.text));
  return ed25519(key.public, message, signature.bytes.slice(8));
}

/** The stated time of a witness's cosignature, in seconds since 1970. */
export function cosignedAt(signature: Signature): bigint {
  return new DataView(signature.bytes.buffer, signature.bytes.byteOffset).getBigUint64(0);
}

export function isWitness(key: Key): boolean {
  return key.kind === witnessKind;
}

const checked = new Map<string, Promise<boolean>>();

/** Reports whether the signature is the key's over the message. Answers are kept for a while: notes come again. */
function ed25519(key: Bytes, message: Bytes, signature: Bytes): Promise<boolean> {
  if (signature.length !== 64) return Promise.resolve(false);
  const question = hex(key) + hex(signature) + hex(sha256(message));
  let answer = checked.get(question);
  if (!answer) {
    if (checked.size >= 1000) checked.clear();
    answer = ask(key, message, signature);
    checked.set(question, answer);
  }
  return answer;
}

async function ask(key: Bytes, message: Bytes, signature: Bytes): Promise<boolean> {
  let imported: CryptoKey;
  try {
    imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  } catch (error) {
    if (await cannotVerify()) throw error;
    return false; // these bytes are no key
  }
  return crypto.subtle.verify("Ed25519", imported, signature, message);
}

/** Tries what proofs need; the answer is a sentence when this browser cannot. */
export async function cannotVerify(): Promise<string | undefined> {
  if (!globalThis.crypto?.subtle) {
    return "This page was not opened over https or from this machine, so the browser gives it no cryptography.";
  }
  try { // the public key of RFC 8032, section 7.1, test 1
    const key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const raw = Uint8Array.from({ length: 32 }, (_, i) => parseInt(key.slice(2 * i, 2 * i + 2), 16));
    await crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]);
    return undefined;
  } catch {
    return "This browser cannot check Ed25519 signatures. Chromium 137, Firefox 129 and Safari 17 can, and later ones.";
  }
}
