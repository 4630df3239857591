// src/proof/driver.ts
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

// src/proof/bytes.ts
var Malformed = class extends Error {
};
function utf8(text) {
  return new TextEncoder().encode(text);
}
var decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
function fromUtf8(bytes3, what) {
  try {
    return decoder.decode(bytes3);
  } catch {
    throw new Malformed(`${what} is not UTF-8`);
  }
}
function concat(...parts) {
  return join(parts);
}
function join(parts) {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}
function equal(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
var digits = Array.from({ length: 256 }, (_, b) => b.toString(16).padStart(2, "0"));
function hex(bytes3) {
  let s = "";
  for (const b of bytes3) s += digits[b];
  return s;
}
function fromHex(text) {
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
function fromDigest(text) {
  return text === "" ? new Uint8Array(32) : fromHex(text);
}
function base64(bytes3) {
  return btoa(latin1(bytes3));
}
function fromBase64(text, what) {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text) || text.length % 4 !== 0) {
    throw new Malformed(`${what} is not base64`);
  }
  const raw2 = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (base64(raw2) !== text) throw new Malformed(`${what} is not base64 in its one form`);
  return raw2;
}
function latin1(bytes3) {
  let s = "";
  for (let i = 0; i < bytes3.length; i += 32768) s += String.fromCharCode(...bytes3.subarray(i, i + 32768));
  return s;
}

// src/proof/instant.ts
var form = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d{0,8}[1-9]))?Z$/;
function instant(text) {
  const found = form.exec(text);
  const ms = found ? Date.parse(text.slice(0, 19) + "Z") : NaN;
  if (!found || Number.isNaN(ms) || text.startsWith("0000") || new Date(ms).toISOString().slice(0, 19) !== text.slice(0, 19)) {
    throw new Malformed("it is no time in UTC");
  }
  return BigInt(ms) * 1000000n + BigInt((found[1] ?? "").padEnd(9, "0"));
}
var second = 1000000000n;

// src/proof/json.ts
var Newer = class extends Error {
};
var Reader = class {
  /** In records, <, >, & and U+FFFD stand as they are or escaped. */
  constructor(text, recorded = false) {
    this.text = text;
    this.recorded = recorded;
  }
  text;
  recorded;
  at = 0;
  /** The outermost object, as far as it was read. */
  top;
  fail(what) {
    throw new Malformed(`${what} at character ${this.at}`);
  }
  word(w2) {
    if (!this.text.startsWith(w2, this.at)) return false;
    this.at += w2.length;
    return true;
  }
  token(pattern, what) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) this.fail(what);
    this.at = pattern.lastIndex;
    return found[0];
  }
  string() {
    const { text } = this;
    if (text.charCodeAt(this.at) !== 34) this.fail("no string");
    const from = this.at++;
    for (let escaped = false; ; this.at++) {
      const c = text.charCodeAt(this.at);
      if (c === 34) {
        this.at++;
        return escaped ? JSON.parse(text.slice(from, this.at)) : text.slice(from + 1, this.at - 1);
      }
      if (c === 92) {
        this.token(this.recorded ? recordedEscape : escape, "no escape");
        this.at--;
        escaped = true;
      } else if (!(c >= 32) || !this.recorded && (c === 60 || c === 62 || c === 38) || c === 8232 || c === 8233) {
        this.fail("what has to be escaped, or the end, in a string");
      }
    }
  }
};
var escape = /\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]|3c|3e|26)|u202[89])/y;
var recordedEscape = /\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]|3c|3e|26)|u202[89]|ufffd)/y;
var number = /0|-?[1-9][0-9]*/y;
var name = /"([a-z0-9_]{1,64})":/y;
var base642 = /"[A-Za-z0-9+/=]*"/y;
var hash = /"(?:[0-9a-f]{64})?"/y;
function parse(text, read, what) {
  const r = new Reader(typeof text === "string" ? text : fromUtf8(text, what));
  const value = read(r);
  if (r.at !== r.text.length) r.fail("something follows");
  return value;
}
function reader(shape2) {
  if (Array.isArray(shape2)) return list(reader(shape2[0]));
  if (typeof shape2 === "object") return object(shape2);
  if (!shape2.endsWith("?")) return scalar(shape2);
  const read = scalar(shape2.slice(0, -1));
  return (r) => r.word("null") ? null : read(r);
}
function scalar(form2) {
  const [, kind, bits] = /^([a-z]+?)(\d*)$/.exec(form2) ?? [];
  switch (kind) {
    case "string":
      return (r) => r.string();
    case "int":
      return integer(-(1n << BigInt(bits) - 1n), 1n << BigInt(bits) - 1n);
    case "uint":
      return integer(0n, 1n << BigInt(bits));
    case "bool":
      return (r) => r.word("true") || !r.word("false") && r.fail("neither true nor false");
    case "time":
      return time;
    case "text":
      return textOrBytes;
    case "bytes":
      return bytes;
    case "hash":
      return digestText;
    case "losses":
      return losses;
  }
  throw new Error(`no shape: ${form2}`);
}
function integer(least, bound) {
  return (r) => {
    const n = BigInt(r.token(number, "no number"));
    return n >= least && n < bound ? n : r.fail("a number that does not fit");
  };
}
function time(r) {
  const text = r.string();
  instant(text);
  return text;
}
function textOrBytes(r) {
  if (!r.word('{"base64":')) return r.string();
  const raw2 = bytes(r);
  if (!r.word("}")) r.fail("no end of bytes");
  try {
    fromUtf8(raw2, "it");
  } catch {
    return raw2;
  }
  return r.fail("UTF-8 as bytes");
}
function bytes(r) {
  return fromBase64(r.token(base642, "no base64").slice(1, -1), "it");
}
function digestText(r) {
  const text = r.token(hash, "no digest").slice(1, -1);
  return text === "0".repeat(64) ? r.fail("a digest in another form") : text;
}
function losses(r) {
  if (!r.word("{")) r.fail("no object");
  const all = /* @__PURE__ */ Object.create(null);
  for (let last2; !r.word("}"); ) {
    if (last2 !== void 0 && !r.word(",")) r.fail("no comma");
    const stage = r.string();
    if (last2 !== void 0 && !before(last2, stage)) r.fail("out of order");
    if (!r.word(":")) r.fail("no colon");
    all[stage] = loss(r);
    last2 = stage;
  }
  return all;
}
var loss = object({ gaps: "uint64", events: "uint64", bytes: "int64" });
function before(a, b) {
  const x = Array.from(a, (c) => c.codePointAt(0));
  const y = Array.from(b, (c) => c.codePointAt(0));
  for (let i = 0; i < x.length && i < y.length; i++) if (x[i] !== y[i]) return x[i] < y[i];
  return x.length < y.length;
}
function list(read) {
  return (r) => {
    if (r.word("null")) return null;
    if (!r.word("[")) r.fail("no list");
    const all = [];
    while (!r.word("]")) {
      if (all.length > 0 && !r.word(",")) r.fail("no comma");
      all.push(read(r));
    }
    return all;
  };
}
function object(shape2) {
  const fields = Object.entries(shape2).map(([key, sub], index) => ({
    name: key.replace("?", ""),
    index,
    read: reader(sub),
    nothing: key.endsWith("?") ? nothing(sub) : void 0
  }));
  const byName = new Map(fields.map((f) => [f.name, f]));
  const required = fields.filter((f) => !f.nothing).map((f) => f.name);
  return (r) => {
    if (!r.word("{")) r.fail("no object");
    const all = /* @__PURE__ */ Object.create(null);
    r.top ??= all;
    for (let due = 0; !r.word("}"); ) {
      if (due > 0 && !r.word(",")) r.fail("no comma");
      const f = byName.get(peek(r));
      if (!f) throw new Newer(peek(r));
      if (f.index < due) r.fail(`${f.name} comes twice, or out of order`);
      due = f.index + 1;
      r.at += f.name.length + 3;
      const from = r.at;
      all[f.name] = f.read(r);
      if (f.nothing?.some((n) => n.length === r.at - from && r.text.startsWith(n, from))) r.fail(`${f.name} says nothing`);
    }
    const missing = required.find((n) => !(n in all));
    return missing === void 0 ? all : r.fail(`${missing} is missing`);
  };
}
function peek(r) {
  name.lastIndex = r.at;
  return name.exec(r.text)?.[1] ?? r.fail("no name");
}
function nothing(shape2) {
  if (Array.isArray(shape2)) return ["null", "[]"];
  if (typeof shape2 !== "string") return [];
  if (shape2.endsWith("?")) return ["null"];
  if (shape2 === "time") return ['"0001-01-01T00:00:00Z"'];
  return ['""', "0", "false"];
}

// src/proof/sha256.ts
var k = constants(64, 1 / 3);
var start = constants(8, 1 / 2);
var w = new Int32Array(64);
var last = new Uint8Array(128);
function constants(n, power) {
  const all = new Int32Array(n);
  for (let p = 2, i = 0; i < n; p++) {
    let prime = true;
    for (let d = 2; d * d <= p; d++) prime &&= p % d !== 0;
    if (prime) all[i++] = p ** power % 1 * 2 ** 32;
  }
  return all;
}
function sha256(data) {
  const h = start.slice();
  const whole = data.length & ~63;
  for (let at = 0; at < whole; at += 64) block(h, data, at);
  const rest = data.length - whole;
  const end = rest < 56 ? 64 : 128;
  last.fill(0);
  last.set(data.subarray(whole));
  last[rest] = 128;
  const bits = new DataView(last.buffer);
  bits.setUint32(end - 8, Math.floor(data.length / 2 ** 29));
  bits.setUint32(end - 4, data.length << 3);
  for (let at = 0; at < end; at += 64) block(h, last, at);
  const sum = new Uint8Array(32);
  const out = new DataView(sum.buffer);
  for (let i = 0; i < 8; i++) out.setInt32(4 * i, h[i]);
  return sum;
}
function block(h, data, at) {
  for (let i = 0; i < 16; i++, at += 4) w[i] = data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3];
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15], y = w[i - 2];
    const s0 = (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
    const s1 = (y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1 | 0;
  }
  let a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], z = h[7];
  for (let i = 0; i < 64; i++) {
    const s1 = (e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7);
    const t1 = z + s1 + (e & f ^ ~e & g) + k[i] + w[i] | 0;
    const s0 = (a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10);
    const t2 = s0 + (a & b ^ a & c ^ b & c) | 0;
    z = g;
    g = f;
    f = e;
    e = d + t1 | 0;
    d = c;
    c = b;
    b = a;
    a = t1 + t2 | 0;
  }
  h[0] = h[0] + a;
  h[1] = h[1] + b;
  h[2] = h[2] + c;
  h[3] = h[3] + d;
  h[4] = h[4] + e;
  h[5] = h[5] + f;
  h[6] = h[6] + g;
  h[7] = h[7] + z;
}
async function digest(data) {
  if (data.length < 1 << 20 || !globalThis.crypto?.subtle) return sha256(data);
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

// src/proof/note.ts
var hostKind = 1;
var witnessKind = 4;
var maxNote = 1 << 20;
var keyForm = /^([!-*,-~]{1,100})\+([0-9a-f]{8})\+([A-Za-z0-9+/]{44})$/;
var signatureLine = /^— ([!-*,-~]{1,100}) ([A-Za-z0-9+/]+={0,2})$/;
function readKey(text) {
  const found = keyForm.exec(text);
  if (!found) throw new Malformed("a public key is one line: NAME+HASH+KEY, as in host.pub");
  const [, name2, id, encoded] = found;
  const raw2 = fromBase64(encoded, "the key");
  const kind = raw2[0];
  if (kind !== hostKind && kind !== witnessKind) throw new Malformed("the key is not an Ed25519 key");
  const computed = keyId(name2, raw2);
  if (hex(computed) !== id) throw new Malformed("the key's hash does not belong to its name and key: it was copied wrongly");
  return { text, name: name2, id: computed, kind, public: raw2.slice(1) };
}
function keyId(name2, raw2) {
  return sha256(concat(utf8(name2 + "\n"), raw2)).slice(0, 4);
}
function readHostKey(text) {
  const key = readKey(text);
  if (key.kind !== hostKind) throw new Malformed(`${key.name} is the key of a witness`);
  return key;
}
function asWitness(key) {
  return { ...key, kind: witnessKind, id: keyId(key.name, concat(new Uint8Array([witnessKind]), key.public)) };
}
async function parseKey(text) {
  return readKey(text.trim());
}
function keysById(keys) {
  const all = /* @__PURE__ */ new Map();
  for (const key of keys) {
    const other = all.get(idOf(key));
    if (other && !equal(other.public, key.public)) throw new Error(`two keys of the name ${key.name} have the same hash`);
    all.set(idOf(key), key);
  }
  return all;
}
function idOf(key) {
  return `${key.name}+${hex(key.id)}`;
}
async function fingerprint(key) {
  return hex(sha256(key.public)).replace(/(.{4})(?=.)/g, "$1 ");
}
function parseNote(data, what) {
  if (data.length > maxNote) throw new Malformed(`${what} has ${data.length} bytes`);
  const whole = fromUtf8(data, what);
  if (/[\u0000-\u0009\u000b-\u001f]/.test(whole)) throw new Malformed(`${what} holds control characters`);
  const cut = whole.indexOf("\n\n");
  if (cut < 1 || !whole.endsWith("\n") || cut + 2 >= whole.length) throw new Malformed(`${what} is not a signed note`);
  const lines = whole.slice(cut + 2, -1).split("\n");
  if (lines.length > 100) throw new Malformed(`${what} has ${lines.length} signatures`);
  const signatures = lines.map((line) => parseSignature(line, what));
  if (new Set(signatures.map(idOf)).size < signatures.length) throw new Malformed(`a key signs ${what} twice`);
  return { text: whole.slice(0, cut + 1), signatures };
}
function parseSignature(line, what) {
  const found = signatureLine.exec(line);
  if (!found) throw new Malformed(`${what} has a line among its signatures that is none`);
  const raw2 = fromBase64(found[2], `a signature of ${what}`);
  if (raw2.length < 5) throw new Malformed(`a signature of ${what} is too short`);
  return { name: found[1], id: raw2.slice(0, 4), bytes: raw2.slice(4) };
}
async function signed(note2, signature, key) {
  if (key.kind === hostKind) return ed25519(key.public, utf8(note2.text), signature.bytes);
  if (signature.bytes.length !== 72) return false;
  const time2 = cosignedAt(signature);
  const message = concat(utf8(`cosignature/v1
time ${time2}
`), utf8(note2.text));
  return ed25519(key.public, message, signature.bytes.slice(8));
}
function cosignedAt(signature) {
  return new DataView(signature.bytes.buffer, signature.bytes.byteOffset).getBigUint64(0);
}
var checked = /* @__PURE__ */ new Map();
function ed25519(key, message, signature) {
  if (signature.length !== 64) return Promise.resolve(false);
  const question = hex(key) + hex(signature) + hex(sha256(message));
  let answer2 = checked.get(question);
  if (!answer2) {
    if (checked.size >= 1e3) checked.clear();
    answer2 = ask(key, message, signature);
    checked.set(question, answer2);
  }
  return answer2;
}
async function ask(key, message, signature) {
  let imported;
  try {
    imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  } catch (error) {
    if (await cannotVerify()) throw error;
    return false;
  }
  return crypto.subtle.verify("Ed25519", imported, signature, message);
}
async function cannotVerify() {
  if (!globalThis.crypto?.subtle) {
    return "This page was not opened over https or from this machine, so the browser gives it no cryptography.";
  }
  try {
    const key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    const raw2 = Uint8Array.from({ length: 32 }, (_, i) => parseInt(key.slice(2 * i, 2 * i + 2), 16));
    await crypto.subtle.importKey("raw", raw2, "Ed25519", false, ["verify"]);
    return void 0;
  } catch {
    return "This browser cannot check Ed25519 signatures. Chromium 137, Firefox 129 and Safari 17 can, and later ones.";
  }
}

// src/proof/schema.json
var schema_default = {
  v: "int64",
  run: "string",
  seq: "uint64",
  time: "time",
  observer: "string",
  kind: "string",
  "step?": "string",
  "guest_time?": {
    time: "time",
    offset_ns: "int64"
  },
  "lifecycle?": {
    phase: "string",
    "name?": "string",
    "argv?": [
      "text"
    ],
    "env?": [
      "text"
    ],
    "tenant?": "string",
    "project?": "string",
    "template?": "string",
    "template_digest?": "string",
    "project_digest?": "string",
    "project_version?": "uint64",
    "project_author?": "string",
    "narrowing_digest?": "string",
    "parent?": {
      op: "string",
      run: "string",
      seq: "uint64",
      root: "string",
      manifest: "string"
    },
    "policy_digest?": "string",
    "ruleset_digest?": "string",
    "tier?": "string",
    "tier_note?": "string",
    "mode?": "string",
    "version?": "string",
    "host?": "string",
    "steps?": [
      "string"
    ],
    "secrets?": [
      "string"
    ],
    "exit_code?": "int64?",
    "status?": "string",
    "reason?": "string",
    "duration_ns?": "int64"
  },
  "exec?": {
    proc: "string",
    "parent?": "string",
    pid: "int64",
    ppid: "int64",
    exe: "text",
    argv: [
      "text"
    ],
    cwd: "text",
    uid: "int64",
    "truncated?": "bool",
    "argv_bytes?": "int64",
    "argv_sha256?": "string",
    "llm?": "string",
    "tool_call?": "text"
  },
  "exit?": {
    proc: "string",
    pid: "int64",
    code: "int64",
    "signal?": "int64",
    duration_ns: "int64",
    "synthetic?": "bool"
  },
  "file?": {
    "proc?": "string",
    "pid?": "int64",
    "parent?": "string",
    op: "string",
    path: "text",
    "to?": "text",
    "source?": "text",
    "device?": "string",
    "inode?": "string",
    size: "int64",
    "sha256?": "string",
    "unhashed?": "string",
    "secrets?": [
      "string"
    ],
    "caller?": "text",
    "offset?": "int64",
    "error?": "text"
  },
  "flow?": {
    "id?": "string",
    "proc?": "string",
    "pid?": "int64",
    "parent?": "string",
    state: "string",
    proto: "string",
    "src_ip?": "string",
    "src_port?": "int64",
    "dst_ip?": "string",
    "dst_port?": "int64",
    "errno?": "int64",
    "name?": "text",
    "verdict?": "string",
    "rule?": "string",
    "reason?": "string",
    "dns_seq?": "uint64",
    "generation?": "uint32",
    "peer?": "string",
    "sni?": "text",
    "bytes_out?": "uint64",
    "bytes_in?": "uint64",
    "packets_out?": "uint64",
    "packets_in?": "uint64",
    "duration_ns?": "int64",
    "count?": "uint64"
  },
  "inbound?": {
    id: "string",
    op: "string",
    port: "int64",
    who: "string",
    via: "string",
    "bytes_in?": "int64",
    "bytes_out?": "int64",
    "reason?": "string",
    "duration_ns?": "int64"
  },
  "dns?": {
    name: "text",
    type: "string",
    "proto?": "string",
    rcode: "string",
    "answers?": [
      "string"
    ],
    "chain?": [
      "text"
    ],
    "ttl?": "uint32",
    verdict: "string",
    rule: "string",
    "reason?": "string",
    "synthetic?": "bool",
    "dropped?": [
      "string"
    ],
    "upstream?": "string",
    "cached?": "bool",
    "latency_ns?": "int64",
    "generation?": "uint32"
  },
  "http?": {
    "flow?": "string",
    "proto?": "string",
    method: "text",
    host: "text",
    path: "text",
    "status?": "int64",
    "bytes_out?": "int64",
    "bytes_in?": "int64",
    verdict: "string",
    rule: "string",
    "reason?": "string",
    "generation?": "uint32",
    "duration_ns?": "int64",
    "credential?": "string",
    "redacted?": "int64",
    "llm?": "string"
  },
  "llm?": {
    id: "string",
    "flow?": "string",
    provider: "string",
    api: "string",
    host: "text",
    "model?": "text",
    input_tokens: "int64",
    output_tokens: "int64",
    "cache_read_tokens?": "int64",
    "cache_write_tokens?": "int64",
    "reasoning_tokens?": "int64",
    "tools?": [
      "text"
    ],
    "tool_calls?": [
      {
        "id?": "text",
        name: "text",
        sha256: "string",
        "arguments?": "text",
        "truncated?": "bool"
      }
    ],
    "stop_reason?": "text",
    "status?": "int64",
    "error?": "text",
    "stream?": "bool",
    "retry?": "int64",
    "request_sha256?": "string",
    "incomplete?": "string",
    duration_ns: "int64",
    "first_token_ns?": "int64",
    "spent?": "int64",
    "budget?": "int64"
  },
  "policy?": {
    generation: "uint32",
    digest: "string",
    "previous?": "string",
    "rules?": [
      "text"
    ]
  },
  "probe?": {
    name: "string",
    "family?": "string",
    blocked: "bool",
    recorded: "bool",
    "attacked?": "string",
    "evidence?": "uint64",
    "detail?": "text"
  },
  "output?": {
    stream: "string",
    offset: "int64",
    text: "text"
  },
  "vm?": {
    op: "string",
    "driver?": "string",
    "tier?": "string",
    "reason?": "string",
    "duration_ns?": "int64"
  },
  "copy?": {
    direction: "string",
    op: "string",
    "dir?": "text",
    "first?": "int64",
    "salt?": "string",
    "files?": [
      {
        path: "text",
        "as?": "text",
        mode: "string",
        size: "int64",
        "sha256?": "string",
        "link?": "text"
      }
    ],
    "count?": "int64",
    "bytes?": "int64",
    "root?": "string",
    "reason?": "string"
  },
  "secret?": {
    "name?": "string",
    op: "string",
    "broker?": "string",
    "via?": "string",
    "tag?": "string",
    "accessor_sha256?": "string",
    "ttl_ns?": "int64",
    "expires?": "time",
    "leases?": "int64",
    "flow?": "string",
    "host?": "text",
    "reason?": "string"
  },
  "gap?": {
    stage: "string",
    "what?": "string",
    "first?": "uint64",
    "last?": "uint64",
    count: "uint64",
    "bytes?": "int64",
    cause: "string"
  },
  "finding?": {
    rule: "string",
    detail: "string",
    "secret?": "string",
    "proc?": "string",
    "evidence?": "uint64",
    "action?": "string"
  },
  "access?": {
    "who?": "string",
    "via?": "string",
    "role?": "string",
    "tenant?": "string",
    action: "string",
    route: "string",
    "about?": "text",
    "query?": "text",
    "remote?": "string",
    verdict: "string",
    "reason?": "string",
    "status?": "int64",
    "count?": "uint64",
    "project?": "string",
    "project_version?": "uint64",
    "project_digest?": "string"
  },
  "note?": {
    who: "string",
    via: "string",
    "role?": "string",
    "tenant?": "string",
    about: "string",
    "seq?": "uint64",
    "leaf?": "string",
    "text?": "text",
    "tags?": [
      "string"
    ],
    "withdraws?": "string",
    "remote?": "string"
  }
};

// src/proof/shapes.ts
var record = reader(schema_default);
var payloads = new Set(Object.entries(schema_default).filter(([name2, s]) => name2.endsWith("?") && typeof s === "object").map(([name2]) => name2.slice(0, -1)));
payloads.delete("guest_time");
var kinds = /* @__PURE__ */ new Set([...payloads, "run", "step"]);
kinds.delete("lifecycle");
var statements = {
  manifest: reader({
    v: "int64",
    run: "string",
    segment: "uint64",
    first: "uint64",
    last: "uint64",
    count: "uint64",
    bytes: "int64",
    prev: "hash",
    root: "hash",
    losses: "losses",
    policy_digest: "string",
    ruleset_digest: "string",
    template_digest: "string",
    tier: "string",
    "tenant?": "string",
    sealed_at: "time",
    closing: "string"
  }),
  erasure: reader({ v: "int64", run: "string", seq: "uint64", leaf: "hash", kind: "string", reason: "string", by: "string", time: "time" }),
  host: reader({ v: "int64", host: "string", key: "string", time: "time" }),
  rotation: reader({ v: "int64", old: "string", new: "string", time: "time" }),
  selection: reader({
    v: "int64",
    run: "string",
    head: "hash",
    records: "uint64",
    withheld: "uint64",
    digest: "hash",
    what: "string",
    by: "string",
    time: "time"
  }),
  attachments: reader({
    v: "int64",
    about: [{ run: "string", head: "hash" }],
    files: [{ name: "string", bytes: "int64", sha256: "hash" }],
    by: "string",
    time: "time"
  }),
  trailer: reader({ v: "int64", run: "string", head: "hash", files: "uint64", bytes: "int64", sha256: "hash" })
};
var path = { index: "uint64", path: ["hash"] };
var note = { note: "string", "log?": path };
var proof = reader({
  type: "string",
  v: "int64",
  run: "string",
  seq: "uint64",
  state: "string",
  "record?": "bytes",
  "salt?": "bytes",
  leaf: "hash",
  leaf_rule: "string",
  "erasure?": note,
  "segment?": path,
  "manifest?": note,
  "checkpoint?": "string",
  "stamp?": "bytes",
  "rotations?": [note],
  "host_key?": "string"
});

// src/proof/statements.ts
function parseStatement(kind, text) {
  const head = `custody ${kind} v1
`;
  if (!text.startsWith(head) || !text.endsWith("}\n")) throw new Malformed(`it is no statement of the kind ${kind}`);
  let said;
  try {
    said = parse(text.slice(head.length, -1), statements[kind], `the ${kind}`);
  } catch (error) {
    throw error instanceof Newer ? new Malformed(`the ${kind} has a member that is not known: ${error.message}`) : error;
  }
  if (said.v !== 1n) throw new Malformed(`the ${kind} is of another version: a newer custody can read it`);
  forms[kind]?.(said);
  return said;
}
var forms = {
  manifest: (m) => {
    if (!runName.test(m.run)) throw new Malformed("the manifest is of no run");
    if ([m.segment, m.first, m.last, m.count].some((n) => n >= 1n << 63n)) throw new Malformed("a number of the manifest does not fit");
    if (m.count === 0n && m.closing === "") throw new Malformed("a manifest of no records does not close the run");
    if (!["", "sealed", "interrupted"].includes(m.closing)) throw new Malformed("the manifest closes the run in a way that is not known");
  },
  host: (h) => {
    if (readHostKey(h.key).name !== h.host) throw new Malformed("a key is stated to be that of another host");
  },
  rotation: (r) => {
    if (readHostKey(r.old).name !== readHostKey(r.new).name) throw new Malformed("a rotation leads to a key of another name");
    if (r.old === r.new) throw new Malformed("a key follows itself");
  },
  attachments: (a) => {
    const names = a.files?.map((f) => f.name) ?? [];
    if (!a.about?.length || names.length < 1 || names.length > 64) throw new Malformed("the attachments are none, or about nothing");
    if (new Set(names.map((n) => n.toLowerCase())).size < names.length) throw new Malformed("two attached files have names that differ in case only");
    if (!a.files.every((f) => f.bytes >= 1n && f.bytes <= 64n << 20n)) throw new Malformed("an attached file is empty, or too long");
    if (!names.every((n, i) => attachable(n) && (i === 0 || names[i - 1] < n))) throw new Malformed("the attachments are not named as they have to be");
  }
};
var runName = /^[0-9A-Za-z._-]{1,128}$/;
function attachable(name2) {
  return /^report\/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$/.test(name2);
}
var erasable = (kind, kinds2) => kinds2.has(kind) && !["run", "step", "policy", "gap", "vm"].includes(kind);
function parseCheckpoint(text) {
  const found = /^([!-*,-~]{1,100})\n(0|[1-9][0-9]{0,19})\n([A-Za-z0-9+/]{43}=)\n$/.exec(text);
  if (!found) throw new Malformed("the checkpoint is not a name, a size and a root on three lines");
  return { origin: found[1], size: uint64(found[2]), root: fromBase64(found[3], "the checkpoint's root") };
}
function uint64(text) {
  const n = BigInt(text);
  if (n >= 1n << 64n) throw new Malformed("a number does not fit");
  return n;
}
var leafHead = "custody leaf v1\n";
function manifestEntry(run, segment2, digest2) {
  return `${leafHead}manifest ${run} ${segment2} ${hex(digest2)}
`;
}
function erasureEntry(run, seq, digest2) {
  return `${leafHead}erasure ${run} ${seq} ${hex(digest2)}
`;
}
function rotationEntry(digest2) {
  return `${leafHead}rotation ${hex(digest2)}
`;
}

// src/proof/archive.ts
var block2 = 512;
var kib = 1 << 10;
var segment = (64 << 20) + (4 << 20) + kib;
var most = { files: 5e6, bytes: 64 * 2 ** 30 };
var fixed = {
  "README.txt": 64 * kib,
  "host.pub": 64 * kib,
  "checkpoint.tsr": 64 * kib,
  checkpoint: 64 * kib,
  since: 64 * kib,
  consistency: 80 * kib,
  selection: 64 * kib,
  attachments: 64 * kib,
  trailer: 64 * kib
};
var numbered = {
  seg: segment,
  leaves: segment,
  manifest: 64 * kib,
  erasure: 64 * kib,
  rotation: 64 * kib,
  host: 64 * kib,
  "tlog-proof": 80 * kib,
  "erasure.tlog-proof": 80 * kib,
  "rotation.tlog-proof": 80 * kib,
  witnessed: 80 * kib,
  "witnessed.tsr": 64 * kib,
  ancestor: 2 ** 33 - 1
};
function limit(name2) {
  const found = /^([0-9]{20})\.(.+)$/.exec(name2);
  if (found && BigInt(found[1]) < 1n << 64n) return Object.hasOwn(numbered, found[2]) ? numbered[found[2]] : 0;
  if (Object.hasOwn(fixed, name2)) return fixed[name2];
  return attachable(name2) ? 64 << 20 : 0;
}
function header(name2, size) {
  const h = new Uint8Array(block2);
  const put = (at, text) => h.set(utf8(text), at);
  put(0, name2);
  put(100, "0000644\x000000000\x000000000\0" + size.toString(8).padStart(11, "0") + "\x0000000000000\0");
  put(148, "        0");
  put(257, "ustar\x0000");
  put(329, "0000000\x000000000\0");
  put(148, h.reduce((sum, c) => sum + c, 0).toString(8).padStart(6, "0") + "\0 ");
  return h;
}
function zipped(data) {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const has = (at, magic) => Math.max(at, 0) + 4 <= data.length && view.getUint32(Math.max(at, 0)) === magic;
  for (let at = Math.max(data.length - 128 * kib, 0); at + 22 <= data.length; at++) {
    if (view.getUint32(at) !== 1347093766) continue;
    const [length, offset] = [view.getUint32(at + 12, true), view.getUint32(at + 16, true)];
    if (has(at - length, 1347092738) || has(offset, 1347092738) || has(at - 20, 1347094023)) return true;
  }
  return false;
}
var zero = (bytes3) => bytes3.every((b) => b === 0);
function unpack(data) {
  const files = /* @__PURE__ */ new Map();
  let at = 0;
  let last2 = "";
  let trailer = 0;
  let total = 0;
  for (; at + block2 <= data.length && !zero(data.subarray(at, at + block2)); ) {
    const h = data.subarray(at, at + block2);
    const name2 = latin1(h.subarray(0, 100)).replace(/\0[^]*$/, "");
    const digits2 = latin1(h.subarray(124, 135));
    const longest = limit(name2);
    if (longest === 0 || !/^[0-7]{11}$/.test(digits2) || !equal(h, header(name2, parseInt(digits2, 8)))) {
      throw new Malformed(`it is no bundle: at byte ${at} is no header of a file that bundles have`);
    }
    const size = parseInt(digits2, 8);
    const end = at + block2 + size;
    const next = end + (block2 - size % block2) % block2;
    if (name2 <= last2) throw new Malformed(`it is no bundle: ${name2} comes after ${last2}`);
    if (size > longest || next > data.length) throw new Malformed(`it is no bundle: ${name2} is cut, or too long`);
    if (!zero(data.subarray(end, next))) throw new Malformed(`it is no bundle: what fills up the last block of ${name2} is not zero`);
    files.set(name2, data.subarray(at + block2, end));
    total += size;
    if (files.size > most.files || total > most.bytes) throw new Malformed("it is no bundle: it holds too much");
    trailer = at;
    last2 = name2;
    at = next;
  }
  if (zipped(data)) throw new Malformed("it is no bundle: it is a zip file as well");
  if (data.length !== at + 2 * block2 || !zero(data.subarray(at)) || last2 !== "trailer") throw new Malformed("it is no bundle: it does not end as bundles do");
  if (!files.has("README.txt") || !files.has("host.pub")) throw new Malformed("it is no bundle: README.txt or host.pub is missing");
  if (files.has("since") !== files.has("consistency")) throw new Malformed("it is no bundle: since and consistency go together");
  return { files, trailer };
}

// src/proof/ring.ts
var grace = 600n;
var Forged = class extends Error {
};
var ForgedCosignature = class extends Forged {
};
var Ring = class _Ring {
  keys;
  /** Statements of the keys that are believed, by the old key. */
  next = /* @__PURE__ */ new Map();
  /** Keys that statements retire and that are not trusted: they still show that what they signed was not altered. */
  named = /* @__PURE__ */ new Map();
  constructor(pinned) {
    this.keys = keysById(pinned);
  }
  knows(key) {
    return this.keys.has(idOf(key));
  }
  /** Reports whether a manifest states a sealing time before the rotation that leads to the key which signed it. */
  early(by, sealed) {
    return this.links.some((r) => idOf(readHostKey(r.new)) === by && instant(sealed) < instant(r.time) - grace * second);
  }
  get links() {
    return [...this.next.values()];
  }
  /** Takes up the keys to which the statements lead. One that begins with an unknown key leads nowhere, and is no finding. */
  async link(statements2) {
    if (statements2.length > 1e3) throw new Malformed("too many rotations of keys");
    let left = [...statements2];
    for (let before2 = -1; before2 !== left.length; ) {
      before2 = left.length;
      const later = [];
      for (const s of left) if (!await this.#take(s)) later.push(s);
      left = later;
    }
  }
  /** Takes up the keys that roots of fleets state to be those of hosts. A statement of an unknown root has no effect. */
  async attest(roots, statements2) {
    if (statements2.length > 1e3) throw new Malformed("too many statements about hosts");
    const trusted = new _Ring(roots);
    for (const s of statements2) {
      const { said, key: root } = await trusted.open("host", s);
      const key = readHostKey(said.key);
      if (root && !this.knows(key)) this.keys.set(idOf(key), key);
    }
  }
  async #take(statement) {
    const { said, by, key } = await this.open("rotation", statement);
    const old = readHostKey(said.old);
    if (idOf(old) !== by) throw new Forged("a rotation is not signed by the key that it retires");
    if (!key) {
      this.named.set(by, old);
      return false;
    }
    const before2 = this.next.get(by);
    if (before2 && (before2.old !== said.old || before2.new !== said.new || before2.time !== said.time)) throw new Forged("a key has two successors");
    this.next.set(by, said);
    const next = readHostKey(said.new);
    this.keys.set(idOf(next), next);
    return true;
  }
  /** Reads a statement, which has exactly one signature. One that names a known key and is not its own is Forged. */
  async open(kind, data) {
    const note2 = parseNote(data, `the ${kind}`);
    const [signature, ...more] = note2.signatures;
    if (!signature || more.length > 0) throw new Malformed(`the ${kind} has ${note2.signatures.length} signatures, not one`);
    const by = idOf(signature);
    const key = this.keys.get(by);
    if (key && !await signed(note2, signature, key)) throw new Forged(`the ${kind} is not what ${signature.name} signed`);
    return { said: parseStatement(kind, note2.text), by, key, note: note2 };
  }
};
async function openOf(ring, kind, data, host) {
  const { said, key } = await ring.open(kind, data);
  if (!key || key.name !== host) throw new Forged(`the ${kind} is not signed by a key of ${host} that is trusted here`);
  return said;
}

// src/proof/checkpoint.ts
async function openCheckpoint(data, host, keys, witnesses) {
  const note2 = parseNote(data, "the checkpoint");
  const c = { ...parseCheckpoint(note2.text), note: note2, cosigned: [] };
  let own = false;
  for (const s of note2.signatures) {
    const id = idOf(s);
    const key = witnesses.get(id) ?? keys.get(id);
    if (!key) continue;
    if (!await signed(note2, s, key)) throw new (witnesses.has(id) ? ForgedCosignature : Forged)(`the checkpoint is not what ${s.name} signed`);
    own ||= s.name === host && !witnesses.has(id);
    if (witnesses.has(id) && !keys.has(id)) c.cosigned.push({ name: s.name, at: cosignedAt(s) });
  }
  if (c.origin !== host) throw new Malformed("the checkpoint is another log's");
  if (!own) throw new Forged(`the checkpoint is not signed by a key of ${host} that is trusted here`);
  return c;
}
var lastSecond = 253402300799n;
function cosignedBy(c, quorum) {
  const times = c.cosigned.map((w2) => w2.at < lastSecond ? w2.at : lastSecond).sort((a, b) => a < b ? -1 : a > b ? 1 : 0);
  return times[Math.min(Math.max(quorum, 1), times.length) - 1];
}

// src/proof/finding.ts
var Finding = class extends Error {
  constructor(message, status = 1) {
    super(message);
    this.status = status;
  }
  status;
};
function check(ok, finding, status = 1) {
  if (!ok) throw new Finding(finding, status);
}

// src/proof/lineage.ts
var generations = 1e3;
async function follow(from, one) {
  const lines = [];
  const left = new Map(from.ancestors);
  const seen = /* @__PURE__ */ new Set([from.run]);
  let doubt = from.doubt;
  let ended = false;
  for (let parent = from.parent; parent; ) {
    const stated = parent;
    check(!seen.has(stated.run), `run ${stated.run} is its own ancestor`);
    seen.add(stated.run);
    const name2 = `${(lines.length + 1).toString().padStart(20, "0")}.ancestor`;
    const data = lines.length < generations ? left.get(name2) : void 0;
    const line = `${stated.op} of ${stated.run}, last manifest ${stated.manifest}`;
    lines.push(data ? line : `${line}, whose record is not here`);
    if (!data) break;
    left.delete(name2);
    const is = ending(data);
    const same3 = is.run === stated.run && is.seq === stated.seq && is.root === stated.root && is.manifest === stated.manifest;
    check(same3, `the record of ${stated.run} is not the one that its child states`);
    const found = await within(stated.run, () => one(data));
    check(found.ancestors.size === 0, `the bundle of ancestor ${stated.run} has ancestors of its own`);
    doubt ??= found.doubt;
    parent = found.parent;
    ended = found.doubt !== void 0 && !parent;
  }
  check(ended || left.size === 0, `files belong to nothing: ${[...left.keys()].slice(0, 10).join(", ")}`);
  return { lines, doubt };
}
async function within(run, one) {
  const named = (text, status) => new Finding(`ancestor ${run}: ${text}`, status);
  try {
    const found = await one();
    return { ...found, doubt: found.doubt && named(found.doubt.message, 2) };
  } catch (error) {
    if (!(error instanceof Finding)) throw error;
    if (error.status === 1) throw named(error.message, 1);
    return { run, ancestors: /* @__PURE__ */ new Map(), doubt: named(error.message, 2) };
  }
}
function ending(data) {
  const name2 = [...unpack(data).files.keys()].filter((n) => /^[0-9]{20}\.manifest$/.test(n)).at(-1);
  const signed2 = name2 ? unpack(data).files.get(name2) : void 0;
  if (!signed2) throw new Malformed("the record of an ancestor has no manifest");
  const m = parseStatement("manifest", parseNote(signed2, "the manifest").text);
  check(m.closing !== "", "the record of an ancestor is not closed");
  return { run: m.run, seq: m.last, root: m.root || "0".repeat(64), manifest: hex(sha256(signed2)) };
}

// src/proof/merkle.ts
var leafPrefix = new Uint8Array([0]);
function leafHash(...data) {
  return sha256(concat(leafPrefix, ...data));
}
function nodeHash(left, right) {
  const both = new Uint8Array(65);
  both[0] = 1;
  both.set(left, 1);
  both.set(right, 33);
  return sha256(both);
}
function rootOf(leaves) {
  const roots = [];
  leaves.forEach((leaf, i) => {
    let hash2 = leaf;
    for (let n = i; n % 2 === 1; n = (n - 1) / 2) hash2 = nodeHash(roots.pop(), hash2);
    roots.push(hash2);
  });
  return roots.length === 0 ? sha256(new Uint8Array(0)) : roots.reduceRight((right, left) => nodeHash(left, right));
}
function included(leaf, index, size, path3, root) {
  if (index >= size) return false;
  const up = climb(leaf, leaf, index, size - 1n, path3);
  return up !== void 0 && equal(up[1], root);
}
function continues(m, n, path3, old, now) {
  if (m === n) return path3.length === 0 && equal(old, now);
  if (m <= 0n || m > n || path3.length === 0) return false;
  const all = (m & m - 1n) === 0n ? [old, ...path3] : path3;
  let node = m - 1n;
  let last2 = n - 1n;
  for (; node & 1n; node >>= 1n) last2 >>= 1n;
  const up = climb(all[0], all[0], node, last2, all.slice(1));
  return up !== void 0 && equal(up[0], old) && equal(up[1], now);
}
function climb(a, b, node, last2, path3) {
  for (const beside of path3) {
    if (last2 === 0n) return void 0;
    if (node & 1n || node === last2) {
      a = nodeHash(beside, a);
      b = nodeHash(beside, b);
      for (; !(node & 1n) && node !== 0n; node >>= 1n) last2 >>= 1n;
    } else {
      b = nodeHash(b, beside);
    }
    node >>= 1n;
    last2 >>= 1n;
  }
  return last2 === 0n ? [a, b] : void 0;
}

// src/proof/copies.ts
var Copies = class {
  /** A list or an end contradicts what came before. */
  wrong = false;
  #open = /* @__PURE__ */ new Map();
  // by direction
  take(c) {
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
    const salt = fromHex(c.salt);
    for (const f of c.files ?? []) {
      const words = [f.path, f.as ?? "", f.mode, String(f.size), f.sha256 ?? "", f.link ?? ""];
      listed.leaves.push(leafHash(salt, concat(...words.map((w2, i) => concat(utf8(i > 0 ? "\0" : ""), raw(w2))))));
      listed.bytes = BigInt.asIntN(64, listed.bytes + f.size);
    }
  }
};
function raw(text) {
  return typeof text === "string" ? utf8(text) : text;
}

// src/proof/crc32c.ts
var table = Int32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? n >>> 1 ^ 2197175160 : n >>> 1;
  return n;
});
function crc32c(data, a, b, c, d) {
  let sum = -1;
  for (; a < b; a++) sum = table[(sum ^ data[a]) & 255] ^ sum >>> 8;
  for (; c < d; c++) sum = table[(sum ^ data[c]) & 255] ^ sum >>> 8;
  return ~sum >>> 0;
}

// src/proof/frames.ts
var maxRecord = 4 << 20;
var recordAt = 29;
var bodyAt = 12;
function* frames(data, leaves, run) {
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const head = utf8(`{"v":1,"run":"${run}","seq":`);
  let at = 0;
  for (const leaf of leaves) {
    check(data.length - at >= recordAt, "a record is missing");
    const length = view.getUint32(at + 4, true);
    const end = at + recordAt + length;
    check(length <= maxRecord && end <= data.length, "a record was altered: its frame has another length");
    check(crc32c(data, at + 4, at + 8, at + bodyAt, end) === view.getUint32(at + 8, true), "a record was altered: its checksum is another");
    const body = data.subarray(at + bodyAt, end);
    const magic = latin1(data.subarray(at, at + 4));
    if (magic === "CWF1") {
      check(body[0] === 0 && equal(sha256(body), leaf), "a record was altered, is missing, was inserted or is out of order");
      const record2 = body.subarray(17);
      yield { seq: seqOf(record2, head), leaf, record: record2, withheld: false };
    } else {
      check(magic === "CWE1" || magic === "CWH1", "a record was altered: its frame does not begin as one");
      yield { seq: gone(body, leaf, run), leaf, withheld: magic === "CWH1" };
    }
    at = end;
  }
  check(at === data.length, "something was appended to a segment");
}
function seqOf(record2, head) {
  const found = equal(record2.subarray(0, head.length), head) && /^([1-9][0-9]{0,19}),/.exec(latin1(record2.subarray(head.length, head.length + 21)));
  check(found && BigInt(found[1]) < 1n << 63n, "a record does not begin as those of this run do");
  return BigInt(found[1]);
}
function gone(body, leaf, run) {
  const end = 41 + run.length;
  const good = body.length >= end && equal(body.subarray(0, 32), leaf) && body[40] === run.length && latin1(body.subarray(41, end)) === run && body.subarray(end).every((b) => b === 0);
  check(good, "an erased or withheld record was altered");
  const seq = new DataView(body.buffer, body.byteOffset).getBigUint64(32, true);
  check(seq > 0n && seq < 1n << 63n, "an erased or withheld record has no seq");
  return seq;
}

// src/proof/scan.ts
function scan(data) {
  const r = new Reader(fromUtf8(data, "the record"), true);
  try {
    record(r);
  } catch (error) {
    if (error instanceof Newer) return { said: r.top ?? {}, stranger: error.message, known: false };
    throw error;
  }
  if (r.at !== r.text.length) r.fail("something follows");
  const said = r.top;
  if (said.observer !== "host" && said.observer !== "guest") throw new Malformed("it has no such observer");
  const kind = said.kind;
  if (!kinds.has(kind)) return { said, known: false };
  const due = kind === "run" || kind === "step" ? "lifecycle" : kind;
  const there = Object.keys(said).filter((name2) => payloads.has(name2));
  if (there.length !== 1 || there[0] !== due) throw new Malformed(`it is of kind ${kind} and does not have the payload of that`);
  return { said, known: true };
}

// src/proof/segments.ts
var Segments = class {
  constructor(run, erasures) {
    this.run = run;
    this.erasures = erasures;
  }
  run;
  erasures;
  last = 0n;
  /** When the run began, in nanoseconds since 1970. */
  began;
  records = 0n;
  erased = 0n;
  withheld = 0n;
  /** What leaves the question open, and undefined if nothing does. */
  strange;
  /** The start of the run. */
  start;
  seen = /* @__PURE__ */ new Set();
  // records that a statement says are erased, whether they are or not
  #holes = [];
  #excuses = [];
  #copies = new Copies();
  #masked = [];
  #copyErased = false;
  /** Checks a segment against its manifest, and returns the time of the oldest record that is shown. Its seqs have to come behind those before. */
  take(m, data, sums) {
    const leaves = Array.from({ length: Math.ceil(sums.length / 32) }, (_, i2) => sums.subarray(32 * i2, 32 * i2 + 32));
    const fits = sums.length % 32 === 0 && BigInt(leaves.length) === m.count && BigInt(data.length) === m.bytes && equal(rootOf(leaves), fromDigest(m.root));
    check(fits, `segment ${m.segment}: records or leaves are not what the manifest signs`);
    if (m.segment === 0n) this.began = instant(m.sealed_at);
    const part = { losses: /* @__PURE__ */ Object.create(null) };
    let first = this.last + 1n;
    let i = 0;
    for (const f of frames(data, leaves, this.run)) {
      check(f.seq > this.last, `seq ${f.seq} comes behind seq ${this.last}`);
      if (i === 0) first = f.seq;
      if (f.seq > this.last + 1n) this.#holes.push([this.last + 1n, f.seq - 1n]);
      this.last = f.seq;
      this.#frame(f, part, i++ === 0 && m.segment === 0n);
    }
    check(first === m.first && this.last === m.last, `segment ${m.segment}: it does not hold seqs ${m.first} to ${m.last}`);
    check(part.strange !== void 0 || same(part.losses, m.losses), `segment ${m.segment}: gap records declare other losses than the manifest`);
    this.records += m.count;
    this.strange ??= part.strange;
    return part.oldest;
  }
  #frame(f, part, opens) {
    const e = this.erasures.get(f.seq);
    check(!e || equal(fromDigest(e.leaf), f.leaf), `the statement of an erasure is about another record than seq ${f.seq}`);
    if (e) this.seen.add(f.seq);
    if (f.record) {
      this.#record(f.seq, f.record, e, part, opens);
    } else if (f.withheld) {
      this.withheld++;
      const seq = new Uint8Array(8);
      new DataView(seq.buffer).setBigUint64(0, f.seq, true);
      this.#masked.push(seq, f.leaf);
    } else {
      check(e, `seq ${f.seq} is erased and no statement says so`);
      this.erased++;
      this.#copyErased ||= e.kind === "copy";
    }
  }
  #record(seq, record2, e, part, opens) {
    let r;
    try {
      r = scan(record2);
    } catch (error) {
      throw new Finding(`the record with seq ${seq} does not have its form: ${error instanceof Error ? error.message : String(error)}`);
    }
    if (r.said.time !== void 0) {
      const at = instant(r.said.time);
      if (opens) this.began = at;
      if (part.oldest === void 0 || at < part.oldest) part.oldest = at;
    }
    if (r.stranger !== void 0) {
      part.strange ??= `seq ${seq} has a field ${r.stranger}: a newer custody can judge it`;
      return;
    }
    const { kind, gap, copy } = r.said;
    check(!e || e.kind === kind, `the statement of an erasure is about another record than seq ${seq}`);
    if (!r.known) {
      part.strange ??= `seq ${seq} is of a kind that is not known: a newer custody can judge it`;
      return;
    }
    if (gap) {
      const l = part.losses[gap.stage] ??= { gaps: 0n, events: 0n, bytes: 0n };
      l.gaps = BigInt.asUintN(64, l.gaps + 1n);
      l.events = BigInt.asUintN(64, l.events + gap.count);
      l.bytes = BigInt.asIntN(64, l.bytes + (gap.bytes ?? 0n));
      if (r.said.observer === "host" && gap.stage === "wal") this.#excuses.push([gap.first ?? 0n, gap.last ?? 0n]);
    }
    if (copy) this.#copies.take(copy);
    if (kind === "run" && r.said.lifecycle?.phase === "start") this.start ??= r.said.lifecycle;
  }
  /** Checks what only all segments together show. */
  end() {
    check(this.strange !== void 0 || this.#declared(), "seqs are missing that no gap declares");
    const blind = this.strange !== void 0 || this.withheld > 0n || this.#holes.length > 0 || this.#copyErased;
    check(blind || !this.#copies.wrong, "the files of a copy do not give its root");
    for (const seq of this.erasures.keys()) check(this.seen.has(seq), `a statement says that seq ${seq} was erased, and the run has no such record`);
  }
  /** Each hole lies in a gap. The holes are in the order of their seqs. */
  #declared() {
    const gaps = this.#excuses.sort(([a], [b]) => a < b ? -1 : a > b ? 1 : 0);
    let next = 0;
    let last2 = 0n;
    return this.#holes.every(([from, to]) => {
      for (; next < gaps.length && gaps[next][0] <= from; next++) if (gaps[next][1] > last2) last2 = gaps[next][1];
      return to <= last2;
    });
  }
  /** The digest over all that is withheld. */
  masked() {
    return hex(sha256(join(this.#masked)));
  }
};
function same(a, b) {
  const stages = Object.keys(a);
  return stages.length === Object.keys(b).length && stages.every((s) => b[s] && a[s].gaps === b[s].gaps && a[s].events === b[s].events && a[s].bytes === b[s].bytes);
}

// src/proof/bundle.ts
async function verifyBundle(data, demands2, told) {
  const check2 = new BundleCheck(demands2, told);
  const one = (ancestor) => new BundleCheck(demands2).all(ancestor);
  try {
    const { lines, doubt } = await follow(await check2.all(data), one);
    check2.verdict.lineage = lines;
    if (doubt) throw doubt;
    return check2.verdict;
  } catch (error) {
    return { ...check2.verdict, ...refusal(error) };
  }
}
function refusal(error) {
  if (error instanceof Finding) return { status: error.status, finding: error.message };
  if (error instanceof Malformed || error instanceof Forged) return { status: 1, finding: error.message };
  throw error;
}
var skew = 300n;
var hashes = "((?:[A-Za-z0-9+/]{43}=\\n){0,64})";
var decimal = "(0|[1-9][0-9]{0,19})";
var BundleCheck = class {
  // the stated times of erasures
  constructor(demands2, told) {
    this.demands = demands2;
    this.told = told;
    this.#ring = new Ring(demands2.hosts);
    this.#witnesses = keysById(demands2.witnesses.map(asWitness));
  }
  demands;
  told;
  verdict = { status: 0, finding: "" };
  #ring;
  #witnesses;
  #files;
  // those that are not spoken for yet
  #manifests = [];
  #host = "";
  #run = "";
  #head = "";
  #signed;
  // the checkpoint
  #checkpoint;
  #entries = [];
  // of rotations and erasures
  #places = /* @__PURE__ */ new Map();
  // in the log, of these
  #erasedAt = [];
  /** Checks the run without its ancestors. */
  async all(data) {
    const archive = unpack(data);
    this.#files = new Map(archive.files);
    const publicKey = latin1(this.#take("host.pub"));
    check(publicKey.endsWith("\n"), "host.pub is not one line");
    this.verdict.offered = publicKey.slice(0, -1);
    const stated = this.#numbered(".host");
    await this.#ring.attest(this.demands.fleets, stated.map((n) => this.#take(n)));
    const rotated = this.#numbered(".rotation");
    await this.#rotations(rotated);
    await this.#chain();
    const own = readHostKey(publicKey.slice(0, -1));
    check(own.name === this.#host, "host.pub is the key of another host");
    check(this.#ring.knows(own), "host.pub is not a key that is trusted here, and no rotation leads there");
    check(idOf(own) === this.#manifests[0].by, "host.pub is not the key that signed the first manifest");
    const fromOne = (names) => names.every((n, i) => BigInt(n.slice(0, 20)) === BigInt(i + 1));
    check(fromOne(stated), "statements about hosts are not numbered from 1");
    check(fromOne(rotated), "rotations are not numbered from 1");
    check(new Set(this.#entries.map(([, entry]) => entry)).size === rotated.length, "a rotation comes twice");
    const selection = await this.#selection();
    const segments = await this.#segments(await this.#erasures());
    this.#end(segments, selection);
    await this.#attached();
    await this.#published();
    const ancestors = new Map(this.#numbered(".ancestor").map((n) => [n, this.#take(n)]));
    this.#strays();
    return { run: this.#run, parent: segments.start?.parent, ancestors, doubt: await this.#trailed(data, archive, segments) };
  }
  /** Takes a file out of those that are not spoken for. */
  #take(name2) {
    const data = this.#files.get(name2);
    this.#files.delete(name2);
    return data;
  }
  #numbered(suffix) {
    return [...this.#files.keys()].filter((n) => n.length === 20 + suffix.length && n.endsWith(suffix) && /^[0-9]{20}/.test(n));
  }
  async #rotations(names) {
    const notes = names.map((n) => this.#take(n));
    await this.#ring.link(notes);
    names.forEach((name2, i) => this.#entries.push([name2, rotationEntry(sha256(notes[i]))]));
  }
  /** Manifests are signed by trusted keys of one name, and each names the one before. */
  async #chain() {
    const digests = [];
    for (const file of this.#numbered(".manifest")) {
      const data = this.#take(file);
      const opened = await this.#ring.open("manifest", data);
      const sum = sha256(data);
      digests.push(hex(sum));
      this.#manifests.push({ ...opened, name: file.slice(0, 20), entry: manifestEntry(opened.said.run, opened.said.segment, sum), index: 0n });
    }
    const all = this.#manifests;
    check(all.length > 0 || this.#numbered(".seg").length === 0, "the tail is cut: there is no manifest");
    check(all.length > 0, "there is no record here", 2);
    const signers = all.filter((m) => m.key);
    check(signers.every((m) => m.key.name === signers[0].key.name), "manifests of two hosts");
    check(signers.length > 0, `the manifests are signed by ${all[0].by}, which is not trusted here`, 2);
    check(signers.length === all.length, "a manifest is not signed by a key that is trusted here, others are");
    this.#host = signers[0].key.name;
    this.#run = all[0].said.run;
    all.forEach(({ said: m, name: name2 }, i) => {
      const place = m.run === this.#run && m.segment === BigInt(i) && m.prev === (digests[i - 1] ?? "") && name2 === m.first.toString().padStart(20, "0");
      check(place, `${name2}.manifest is of another run or out of chain, or one before it is missing`);
      check(m.closing === "" || i === all.length - 1, "there is a manifest behind the end");
    });
    this.#early();
    this.#head = digests.at(-1);
    Object.assign(this.verdict, { run: this.#run, head: this.#head });
  }
  async #selection() {
    const data = this.#take("selection");
    if (!data) return void 0;
    const s = await openOf(this.#ring, "selection", data, this.#host);
    check(s.run === this.#run && s.head === this.#head, "the selection is of another run");
    return s;
  }
  async #erasures() {
    const all = /* @__PURE__ */ new Map();
    for (const name2 of this.#numbered(".erasure")) {
      const seq = BigInt(name2.slice(0, 20));
      const data = this.#take(name2);
      const e = await openOf(this.#ring, "erasure", data, this.#host);
      check(e.run === this.#run && e.seq === seq, `${name2} is about another record`);
      check(erasable(e.kind, kinds), "a record was erased that has to stay");
      all.set(seq, e);
      this.#entries.push([name2, erasureEntry(this.#run, seq, sha256(data))]);
      this.#erasedAt.push([name2, e.time]);
    }
    return all;
  }
  async #segments(erasures) {
    const segments = new Segments(this.#run, erasures);
    const none = new Uint8Array(0);
    for (const [i, manifest] of this.#manifests.entries()) {
      const { said: m, name: name2 } = manifest;
      await this.told?.(i / this.#manifests.length);
      check(m.count === 0n || this.#files.has(name2 + ".seg"), `segment ${m.segment} is missing`);
      manifest.oldest = segments.take(m, this.#take(name2 + ".seg") ?? none, this.#take(name2 + ".leaves") ?? none);
      if (i === 0) this.#retired(segments.began);
    }
    return segments;
  }
  /** No key signs a manifest that says it was sealed before a rotation led to the key. */
  #early() {
    for (const { by, said, name: name2 } of this.#manifests) {
      check(!this.#ring.early(by, said.sealed_at), `${name2}.manifest is signed by a key that the host did not have yet`);
    }
  }
  /** No key signs for a run that began after the key was retired. */
  #retired(began) {
    for (const { by } of this.#manifests) {
      const r = this.#ring.next.get(by);
      check(!r || began <= instant(r.time) + grace * second, "the run is signed by a key that was retired before it began");
    }
  }
  #end(segments, selection) {
    check(selection || segments.withheld === 0n, "records are withheld without a statement");
    check(this.#manifests.at(-1).said.closing !== "" && this.#numbered(".seg").length === 0, "the tail is cut, or there is a segment behind the end");
    if (selection) {
      const { records, withheld, digest: digest2 } = selection;
      check(records === segments.records && withheld === segments.withheld && digest2 === segments.masked(), "other records are withheld than the selection says");
    }
    segments.end();
    Object.assign(this.verdict, { records: segments.records, erased: segments.erased, withheld: segments.withheld });
  }
  async #attached() {
    const files = new Map([...this.#files].filter(([name2]) => attachable(name2)));
    const statement = this.#take("attachments");
    if (statement) {
      const a = await openOf(this.#ring, "attachments", statement, this.#host);
      check(a.about.some((s) => s.run === this.#run && s.head === this.#head), "the attachments are about another run");
      for (const f of a.files) {
        const data = files.get(f.name) ?? new Uint8Array(0);
        check(BigInt(data.length) === f.bytes && hex(await digest(data)) === (f.sha256 || "0".repeat(64)), `${f.name} is not what was attached`);
        files.delete(f.name);
        this.#take(f.name);
      }
    }
    check(files.size === 0, "a file is attached that no statement names");
  }
  /** All that is signed stands in the host's log, which goes on from earlier checkpoints. */
  async #published() {
    const signed2 = this.#take("checkpoint");
    check(signed2, "the checkpoint of the host's log is missing");
    this.#signed = signed2;
    this.#checkpoint = await openCheckpoint(signed2, this.#host, this.#ring.keys, this.#witnesses);
    const { size, cosigned } = this.#checkpoint;
    Object.assign(this.verdict, { size, witnesses: cosigned.map((w2) => w2.name) });
    check(cosigned.length >= this.demands.quorum, `too few witnesses that are trusted here have cosigned the checkpoint: ${cosigned.length}`);
    const kept = await this.#since();
    for (const [name2, entry] of this.#entries) this.#places.set(name2, this.#place(name2, entry));
    for (const m of this.#manifests) m.index = this.#place(m.name, m.entry);
    await this.#timely();
    if (kept) this.#backdated(kept);
  }
  /** The log went on from the checkpoint in the bundle and from the verifier's own, which is returned. */
  async #since() {
    const brought = this.#take("since");
    let from;
    let path3 = [];
    if (brought) {
      [from, path3] = this.#proof("consistency", `old ${decimal}\\n`);
      const old = await openCheckpoint(brought, this.#host, new Map([...this.#ring.keys, ...this.#ring.named]), this.#witnesses);
      check(old.size === from, "the proof of consistency is about another tree");
      this.#goesOn(old, from, path3);
      check(old.size > 0n && old.size < this.#checkpoint.size || path3.length === 0, "the proof of consistency is longer than it has to be");
    }
    if (!this.demands.since) return void 0;
    const kept = await openCheckpoint(this.demands.since, this.#host, this.#ring.keys, this.#witnesses);
    this.#goesOn(kept, from, path3);
    return kept;
  }
  #goesOn(old, from, path3) {
    const { size, root } = this.#checkpoint;
    check(old.size <= size, `the log has ${size} entries, there were ${old.size}`);
    check(old.size !== size || equal(old.root, root), "the log is forked");
    if (old.size === 0n || old.size === size) return;
    check(old.size === from, "there is no proof that the log continues from the checkpoint that was kept");
    check(continues(old.size, size, path3, old.root, root), "the log does not continue from the checkpoint that was kept");
  }
  /** The number and the path of a proof, which ends with the bundle's checkpoint. */
  #proof(name2, start2) {
    const data = this.#take(name2);
    check(data, `${name2} is missing`);
    const at = data.length - this.#signed.length;
    check(at >= 0 && equal(data.subarray(at), this.#signed), `${name2} is under another checkpoint`);
    const found = new RegExp(`^${start2}${hashes}\\n$`).exec(latin1(data.subarray(0, at)));
    check(found, `${name2} has another form, or is about another entry`);
    return [uint64(found[1]), path2(found[2])];
  }
  /** Checks that an entry is in the log, and returns where. */
  #place(name2, entry) {
    const extra = base64(utf8(entry)).replace(/[+]/g, "\\+");
    const [index, path3] = this.#proof(name2 + ".tlog-proof", `c2sp\\.org/tlog-proof@v1\\nextra ${extra}\\nindex ${decimal}\\n`);
    check(included(leafHash(utf8(entry)), index, this.#checkpoint.size, path3, this.#checkpoint.root), `${name2} is not in the host's log`);
    return index;
  }
  /** Witnesses saw each manifest soon after its stated time of sealing, and its records soon after their stated times. */
  async #timely() {
    const shown = [this.#checkpoint];
    for (const m of this.#manifests) {
      const data = this.#take(m.name + ".witnessed");
      if (!data) continue;
      this.#take(m.name + ".witnessed.tsr");
      shown.push(await this.#witnessed(m, data));
    }
    const { quorum, within: within2 } = this.demands;
    const dated = shown.filter((c) => c.cosigned.length >= quorum).map((c) => ({ size: c.size, at: cosignedBy(c, quorum) }));
    dated.sort((a, b) => order(a.size, b.size));
    let first;
    for (const m of [...this.#manifests].sort((a, b) => order(b.index, a.index))) {
      for (; dated.length > 0 && dated.at(-1).size > m.index; dated.pop()) {
        const { at } = dated.at(-1);
        if (at !== void 0 && (first === void 0 || at < first)) first = at;
      }
      if (first === void 0) continue;
      const accepted = (first - within2) * second;
      check(instant(m.said.sealed_at) >= accepted, `witnesses saw ${m.name}.manifest long after it says that it was sealed`);
      check(m.oldest === void 0 || m.oldest >= accepted, `witnesses saw ${m.name}.manifest long after a record in it says that it was written`);
    }
  }
  async #witnessed(m, data) {
    const name2 = m.name + ".witnessed";
    const found = new RegExp(`^custody witnessed v1\\n${hashes}\\n`).exec(latin1(data));
    check(found, `${name2} has another form`);
    const old = await openCheckpoint(data.subarray(found[0].length), this.#host, this.#ring.keys, this.#witnesses);
    const { size, root } = this.#checkpoint;
    check(m.index < old.size && old.size <= size, `${name2} does not cover the manifest`);
    check(continues(old.size, size, path2(found[1]), old.root, root), `${name2}: the log does not go on from there`);
    return old;
  }
  /** No entry that was added to the log after the kept checkpoint claims to be much older. */
  #backdated(kept) {
    const at = cosignedBy(kept, this.demands.quorum);
    for (const [name2, time2] of this.#erasedAt) {
      const young = at !== void 0 && this.#places.get(name2) >= kept.size;
      check(!young || instant(time2) >= (at - this.demands.within) * second, `${name2} is younger in the log than it says`);
    }
    for (const { index, said, name: name2, oldest } of this.#manifests) {
      const young = at !== void 0 && index >= kept.size;
      check(!young || instant(said.sealed_at) >= (at - skew) * second, `${name2}.manifest is younger in the log than it says`);
      check(!young || oldest === void 0 || oldest >= (at - this.demands.within) * second, `${name2}.manifest is younger in the log than a record in it says`);
    }
  }
  #strays() {
    for (const name2 of ["README.txt", "checkpoint.tsr", "trailer"]) this.#files.delete(name2);
    check(this.#files.size === 0, `files belong to nothing: ${[...this.#files.keys()].slice(0, 10).join(", ")}`);
  }
  /** All bytes are what the signer of the trailer wrote. It returns what cannot be determined. */
  async #trailed(data, archive, segments) {
    const { said: t, key } = await this.#ring.open("trailer", archive.files.get("trailer"));
    const about = t.run === this.#run && t.head === this.#head && t.files === BigInt(archive.files.size - 1) && t.bytes === BigInt(archive.trailer);
    check(about && t.sha256 === hex(await digest(data.subarray(0, archive.trailer))), "the bundle is not what its trailer signs");
    if (segments.strange !== void 0) return new Finding(segments.strange, 2);
    return key ? void 0 : new Finding("the trailer is not signed by a key that is trusted here", 2);
  }
};
var order = (a, b) => a < b ? -1 : a > b ? 1 : 0;
function path2(lines) {
  return lines.split("\n").slice(0, -1).map((line) => fromBase64(line, "a hash of a path"));
}

// src/proof/document.ts
var leafRule = "SHA-256(0x00 || salt || record)";
var longestRecord = 4 << 20;
var longestDocument = 2 * longestRecord + (1 << 20);
var longestPath = 64;
var longestNote = 64 << 10;
function parseDocument(data) {
  if (data.length > longestDocument || data.at(-1) !== 10) throw new Malformed("it is no proof of a record: keep the answer as it came");
  let d;
  try {
    d = parse(data.subarray(0, -1), proof, "the proof");
  } catch (error) {
    throw error instanceof Newer ? new Malformed(`the proof has a member that is not known: ${error.message}`) : error;
  }
  if (d.type !== "custody record proof" || d.v !== 1n) throw new Malformed("it is not a proof of a record, version 1: a newer custody can read it");
  if (d.leaf_rule !== leafRule) throw new Malformed("it has another rule for leaves");
  const state = d.state;
  if (state !== "open" && state !== "sealed" && state !== "logged") throw new Malformed("its state is none that is known");
  const doc = {
    run: d.run,
    seq: d.seq,
    state,
    record: d.record,
    salt: d.salt,
    leaf: fromDigest(d.leaf),
    erasure: d.erasure && loggedNote(d.erasure),
    segment: d.segment && auditPath(d.segment),
    manifest: d.manifest && loggedNote(d.manifest),
    checkpoint: d.checkpoint === void 0 ? void 0 : utf8(d.checkpoint),
    stamp: d.stamp,
    rotations: (d.rotations ?? []).map(loggedNote),
    hostKey: d.host_key
  };
  shape(doc);
  return doc;
}
function shape(d) {
  if (d.seq < 1n || d.seq >= 1n << 63n) throw new Malformed(`no record has seq ${d.seq}`);
  const sealed = d.state !== "open";
  const logged = d.state === "logged";
  const erased = d.erasure !== void 0;
  if (erased === (d.record !== void 0) || erased === (d.salt !== void 0) || erased && !sealed) {
    throw new Malformed("it must have a record with its salt, or a statement of its erasure");
  }
  if (d.salt && d.salt.length !== 16) throw new Malformed(`its salt has ${d.salt.length} bytes`);
  if (sealed !== (d.manifest !== void 0) || sealed !== (d.segment !== void 0)) {
    throw new Malformed("manifest and path in the segment belong to states sealed and logged");
  }
  if (logged !== (d.checkpoint !== void 0) || sealed && logged !== (d.manifest.log !== void 0)) {
    throw new Malformed("checkpoint and path in the log belong to state logged");
  }
  if (!logged && (d.rotations.length > 0 || d.stamp || d.erasure?.log)) {
    throw new Malformed("rotations, time stamp and paths in the log belong to state logged");
  }
  if (new Set(d.rotations.map((r) => latin1(r.note))).size < d.rotations.length) throw new Malformed("a rotation comes twice");
  const long = (d.record?.length ?? 0) > longestRecord || (d.checkpoint?.length ?? 0) > longestNote || (d.stamp?.length ?? 0) > longestNote;
  if (long) throw new Malformed("a part of it is longer than any can be");
}
function auditPath(p) {
  if (!p.path || p.path.length > longestPath) throw new Malformed("a path is missing, or longer than any can be");
  return { index: p.index, path: p.path.map(fromDigest) };
}
function loggedNote(n) {
  const note2 = utf8(n.note);
  if (note2.length > longestNote) throw new Malformed("a note is longer than any can be");
  return n.log ? { note: note2, log: auditPath(n.log) } : { note: note2 };
}

// src/proof/record.ts
var Stop = class extends Error {
  constructor(step, outcome, message) {
    super(message);
    this.step = step;
    this.outcome = outcome;
  }
  step;
  outcome;
};
async function verifyRecord(data, shown, trust, asked = {}) {
  const check2 = new Check(shown, trust, asked);
  try {
    await check2.all(data);
  } catch (error) {
    check2.stopped(error);
  }
  return check2.report;
}
var Check = class {
  // what a newer version wrote
  constructor(shown, trust, asked) {
    this.shown = shown;
    this.trust = trust;
    this.asked = asked;
  }
  shown;
  trust;
  asked;
  report = { overall: "cannot", text: "", steps: [] };
  #at = "record";
  #doc;
  #ring;
  #pinned = false;
  #witnesses = /* @__PURE__ */ new Map();
  #manifest;
  #signer;
  #doubt;
  async all(data) {
    this.#doc = parseDocument(data);
    await this.#keys();
    await this.#record();
    if (this.#doc.state === "open") {
      this.#end("pending", "The record is written, but not yet signed. Its segment is sealed within about a second; then this can be checked.");
      return;
    }
    await this.#seal();
    if (this.#doc.erasure) await this.#erasure(this.#doc.erasure, this.#signer.name);
    if (this.#doc.state === "sealed") {
      this.#end("pending", "The record is under a signed manifest, which is not under a checkpoint of the host's log yet.");
      return;
    }
    await this.#log();
    if (this.#doubt) {
      this.#end("cannot", this.#doubt);
    } else if (this.#pinned) {
      this.#end("holds", "The host signed exactly these bytes at this place of the run, and the record is in the host's log.");
    } else {
      this.#end("consistent", "All parts are consistent. The key came with the answer: an attacker who could forge the record could have sent that key, too. Pin the host's key, obtained over a trusted channel, to prove that it is the host's record.");
    }
  }
  #end(overall, text) {
    this.report.overall = overall;
    this.report.text = text;
  }
  stopped(error) {
    const forged = error instanceof Malformed || error instanceof Forged || error instanceof Finding;
    const at = error instanceof ForgedCosignature ? "witnesses" : this.#at;
    const stop = error instanceof Stop ? error : new Stop(at, forged ? "fails" : "cannot", sentence(error));
    this.#add(stop.step, stop.outcome, sentence(stop));
    this.#end(stop.outcome, stop.outcome === "fails" ? "The proof does not hold: " + sentence(stop) : sentence(stop));
  }
  #add(name2, outcome, text, facts = []) {
    this.report.steps.push({ name: name2, outcome, text, facts });
  }
  /** Decides which keys to trust: the reader's, or without any those that came with the answer. */
  async #keys() {
    this.#at = "manifest";
    const witnesses = await Promise.all(this.trust.witnesses.map(parseKey));
    this.#witnesses = keysById(witnesses.map(asWitness));
    const pinned = await Promise.all(this.trust.hosts.map(parseKey));
    const offered = this.#offered();
    if (offered) this.report.offered = { key: offered.text, fingerprint: await fingerprint(offered) };
    this.#pinned = pinned.length > 0 || this.asked.strict === true;
    const own = this.#pinned ? pinned : [...offered ? [offered] : [], ...this.#retired()];
    this.#ring = new Ring(own);
    await this.#ring.link(this.#doc.rotations.map((r) => r.note));
    this.#at = "record";
  }
  /** The key that came with the document; undefined if there is none, or it is no key, which is reported when it matters. */
  #offered() {
    try {
      return this.#doc.hostKey === void 0 ? void 0 : readHostKey(this.#doc.hostKey);
    } catch {
      return void 0;
    }
  }
  /** The keys that the document's rotations begin with. */
  #retired() {
    return this.#doc.rotations.map((r) => readHostKey(parseStatement("rotation", parseNote(r.note, "a rotation").text).old));
  }
  /** The record gives the leaf, has its form, and is the one that the page shows. */
  async #record() {
    const d = this.#doc;
    const { shown } = this;
    if (shown && (d.run !== shown.run || d.seq !== BigInt(shown.seq))) throw new Stop("record", "fails", "the proof is about another record than the one that is shown");
    if (!d.record) return;
    if (!equal(leafHash(concat(d.salt, d.record)), d.leaf)) throw new Stop("record", "fails", "the record does not give the leaf: its bytes were changed");
    if (seqOf(d.record, utf8(`{"v":1,"run":"${d.run}","seq":`)) !== d.seq) throw new Stop("record", "fails", "the record says itself that it is another one");
    const { stranger, known } = scan(d.record);
    if (stranger !== void 0) this.#doubt = `The record has a field ${stranger}, which a newer version wrote: it cannot be judged here.`;
    else if (!known) this.#doubt = "The record is of a kind that a newer version wrote: it cannot be judged here.";
    const text = fromUtf8(d.record, "the record");
    if (shown?.record !== void 0 && !same2(JSON.parse(text), shown.record)) {
      throw new Stop("record", "fails", "the record that this page shows is not the one that was signed");
    }
    this.report.record = text;
    this.#add(
      "record",
      "holds",
      "The hash of the salt and the record's exact bytes is the leaf.",
      [["Bytes", String(d.record.length)], ["Salt", hex(d.salt)], ["Leaf", hex(d.leaf)]]
    );
  }
  /** The leaf leads to the root that the manifest signs, and the manifest is signed by a key that is believed. */
  async #seal() {
    const d = this.#doc;
    this.#at = "manifest";
    const { said: m, key, note: note2 } = await this.#ring.open("manifest", d.manifest.note);
    if (!key) throw new Stop("manifest", "cannot", this.#unknown(note2));
    this.#manifest = m;
    this.#signer = key;
    if (m.run !== d.run) throw new Stop("manifest", "fails", "the manifest belongs to another run");
    if (m.count === 0n || d.seq < m.first || d.seq > m.last) throw new Stop("manifest", "fails", `the manifest signs for seqs ${m.first} to ${m.last}, not for this one`);
    if (this.#ring.early(idOf(key), m.sealed_at)) throw new Stop("manifest", "fails", "the manifest is signed by a key that the host did not have yet");
    const named = d.hostKey === void 0 ? void 0 : readHostKey(d.hostKey);
    if (named && (named.name !== key.name || !this.#ring.knows(named))) {
      throw new Stop("manifest", "fails", "the answer names a host key that is not the one that signed, and no rotation leads there");
    }
    this.#segment(m);
    this.report.signer = { key: this.#signer.text, fingerprint: await fingerprint(this.#signer), pinned: this.#pinned };
    const whose = this.#pinned ? "a key that you pinned" + (this.#ring.links.length ? ", or one that a pinned key named as its successor" : "") : "the key that came with the answer";
    this.#add("manifest", "holds", `The manifest of segment ${m.segment} is signed by ${this.#signer.name}: ${whose}.`, [
      ["Signs for", `seq ${m.first} to ${m.last}, ${m.count} records`],
      ["Sealed at, by the host's clock", m.sealed_at],
      ["Isolation tier", m.tier],
      ["Key's fingerprint", this.report.signer.fingerprint],
      ["SHA-256 of the manifest", hex(sha256(d.manifest.note))]
    ]);
  }
  #segment(m) {
    const d = this.#doc;
    const { index, path: path3 } = d.segment;
    if (!included(d.leaf, index, m.count, path3, fromDigest(m.root))) {
      throw new Stop("segment", "fails", `leaf ${index} of ${m.count} does not lead to the root that the manifest signs`);
    }
    if (index > d.seq - m.first || m.count - index > m.last - d.seq + 1n) {
      throw new Stop("segment", "fails", `a record with this seq cannot be leaf ${index} of ${m.count}`);
    }
    this.#add(
      "segment",
      "holds",
      `Leaf ${index + 1n} of ${m.count} leads to the segment's root over ${path3.length} ${path3.length === 1 ? "hash" : "hashes"}.`,
      [["Root", m.root], ...path3.map((h, i) => [`Hash ${i + 1}`, hex(h)])]
    );
  }
  #unknown(note2) {
    const who = note2.signatures[0];
    const offered = this.report.offered ? ` The answer offers a key with the fingerprint ${this.report.offered.fingerprint}.` : "";
    return `The manifest is signed by ${who.name}, key ${hex(who.id)}, which is not a key that you pinned.${offered}`;
  }
  /** The host's log has what was signed, under a checkpoint that the host signed. */
  async #log() {
    const d = this.#doc;
    const m = this.#manifest;
    const host = this.#signer.name;
    this.#at = "checkpoint";
    const c = await openCheckpoint(d.checkpoint, host, this.#ring.keys, this.#witnesses);
    const quorum = this.asked.quorum ?? 0;
    if (c.cosigned.length < quorum) throw new Stop("witnesses", "fails", `${c.cosigned.length} of the ${quorum} witnesses that are needed have cosigned the checkpoint`);
    if (this.asked.since) await this.#since(this.asked.since, host, c);
    this.#at = "log";
    for (const r of d.rotations) this.#entered(r, rotationEntry, c, "a key's rotation");
    this.#entered(d.manifest, (digest2) => manifestEntry(m.run, m.segment, digest2), c, "the manifest");
    if (d.erasure) this.#entered(d.erasure, (digest2) => erasureEntry(d.run, d.seq, digest2), c, "the statement of the erasure");
    this.#add(
      "log",
      "holds",
      `The manifest is entry ${d.manifest.log.index + 1n} of ${c.size} in the host's log.`,
      [["Root of the log", hex(c.root)], ...d.manifest.log.path.map((h, i) => [`Hash ${i + 1}`, hex(h)])]
    );
    this.#add("checkpoint", "holds", `The head of the log, ${c.size} entries, is signed by ${c.origin}.`, []);
    this.#cosigned(c);
    if (d.stamp) {
      this.#add("stamp", "none", "There is a time stamp over the checkpoint. It is not checked here: download the proof and check it with openssl, as docs/verify.md describes.");
    }
  }
  async #since(kept, host, c) {
    const old = await openCheckpoint(kept, host, this.#ring.keys, this.#witnesses);
    if (old.size !== 0n && (old.size !== c.size || !equal(old.root, c.root))) {
      throw new Stop("checkpoint", "fails", "there is no proof that the log went on from the checkpoint that was kept");
    }
  }
  /** A note is in the log where the document says; of the same note that comes twice, where it first does. */
  #entered(n, entry, c, what) {
    const d = this.#doc;
    const all = [...d.rotations, d.manifest, d.erasure].filter((x) => x?.log !== void 0 && equal(x.note, n.note));
    const log = all[0]?.log;
    if (!log) throw new Stop("log", "fails", `there is no proof that ${what} is in the host's log`);
    const leaf = leafHash(utf8(entry(sha256(n.note))));
    if (!included(leaf, log.index, c.size, log.path, c.root)) throw new Stop("log", "fails", `${what} is not in the tree that the checkpoint signs`);
  }
  async #erasure(n, host) {
    const d = this.#doc;
    this.#at = "record";
    const e = await openOf(this.#ring, "erasure", n.note, host);
    if (e.run !== d.run || e.seq !== d.seq || !equal(fromDigest(e.leaf), d.leaf)) throw new Stop("record", "fails", "the statement of the erasure is about another record");
    if (!erasable(e.kind, kinds)) throw new Stop("record", "fails", "a record of this kind may not be erased");
    this.#add(
      "record",
      "holds",
      "The record was erased. Its leaf is still in its place, and the host has signed who erased it and why.",
      [["Kind, as the host says", e.kind], ["Reason", e.reason], ["By", e.by], ["At", e.time], ["Leaf", hex(d.leaf)]]
    );
  }
  /** Witnesses saw this checkpoint. Those that the reader did not pin count for nothing. */
  #cosigned(c) {
    const good = c.cosigned.map((w2) => `${w2.name}, at ${moment(w2.at)}`);
    const others = c.note.signatures.filter((s) => !this.#ring.keys.has(idOf(s)) && !this.#witnesses.has(idOf(s))).map((s) => s.name);
    const facts = [...good.map((g) => ["Cosigned by", g]), ...others.map((o) => ["Also signed, not checked", o])];
    if (good.length > 0) this.#add("witnesses", "holds", `${good.length} of ${this.#witnesses.size} witnesses that you pinned have cosigned this checkpoint.`, facts);
    else if (this.#witnesses.size > 0) this.#add("witnesses", "cannot", "No witness that you pinned has cosigned this checkpoint.", facts);
    else this.#add("witnesses", "none", "You have pinned no witness: that the host shows everybody the same log is not checked.", facts);
  }
};
function moment(seconds) {
  return seconds < 253402300800n ? new Date(Number(seconds) * 1e3).toISOString() : `second ${seconds}`;
}
function sentence(error) {
  const text = error instanceof Error ? error.message : String(error);
  return text.charAt(0).toUpperCase() + text.slice(1);
}
function same2(a, b) {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const x = Object.entries(a);
  return x.length === Object.keys(b).length && x.every(([k2, v]) => Object.hasOwn(b, k2) && same2(v, b[k2]));
}

// src/proof/evidence.ts
function verifyFile(data, demands2, told) {
  return data[0] === 123 ? verifyDocument(data, demands2) : verifyBundle(data, demands2, told);
}
async function verifyDocument(data, { hosts, witnesses, quorum, since }) {
  const texts = { hosts: hosts.map((k2) => k2.text), witnesses: witnesses.map((k2) => k2.text) };
  const { overall, text, offered } = await verifyRecord(data, void 0, texts, { quorum, since, strict: true });
  return { status: overall === "holds" ? 0 : overall === "fails" ? 1 : 2, finding: overall === "holds" ? "" : text, offered: offered?.key };
}

// src/proof/driver.ts
var mostSeconds = 9223372036;
var bytes2 = (file) => new Uint8Array(readFileSync(file));
function demands(options) {
  const all = { hosts: [], fleets: [], witnesses: [], quorum: 0, within: 86400n };
  const hosts = [];
  const fleets = [];
  const witnesses = [];
  for (let i = 0; i < options.length; i += 2) {
    const [option, value] = [options[i], options[i + 1] ?? ""];
    if (option === "--key") hosts.push(readHostKey(value));
    else if (option === "--fleet-key") fleets.push(readHostKey(value));
    else if (option === "--witness") witnesses.push(readKey(value));
    else if (option === "--since") all.since = bytes2(value);
    else if (option === "--quorum" && /^[0-9]{1,9}$/.test(value)) all.quorum = Number(value);
    else if (option === "--within" && /^[1-9][0-9]{0,9}$/.test(value) && Number(value) <= mostSeconds) all.within = BigInt(value);
    else throw new Malformed(`it was asked for in a way that is not known: ${option} ${value}`);
  }
  const given = keysById(witnesses.map(asWitness)).size;
  if (all.quorum > given) throw new Malformed(`a quorum of ${all.quorum}, and ${given} witnesses`);
  return { ...all, hosts, fleets, witnesses, quorum: all.quorum || given };
}
async function answer(line) {
  const [file = "", ...options] = line.split("	");
  let asked;
  let data;
  try {
    asked = demands(options);
    data = bytes2(file);
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
