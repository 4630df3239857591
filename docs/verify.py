#!/usr/bin/env python3
"""verify.py BUNDLE|PROOF.json --key host.pub [--key ...] [--fleet-key KEY ...] [--witness KEY ... --quorum N]
[--since CHECKPOINT] [--within SECONDS]
Checks a bundle, or the proof of one record, with Python, openssl and nothing of custody's; docs/verify.md says
what the steps mean. A key is a file or the key itself. Exit status: 0 it holds, 1 it does not, 2 it cannot be judged."""
import base64, binascii, calendar, functools, hashlib, json, os, pathlib, re, struct, subprocess, sys, tempfile, time

class Found(Exception):  # a finding with its exit status
    def __init__(self, finding, status): self.finding, self.status = finding, status

def check(ok, finding, status=1):
    if not ok: raise Found(finding, status)

# ---- Values: each has one form, and what is written in another one is refused.

class Malformed(Exception): pass
class Newer(Exception): pass  # a name that this version does not know

def want(ok, what):
    if not ok: raise Malformed(what)

def b64(text):
    raw = base64.b64decode(text, validate=True)
    want(base64.b64encode(raw) == (text if isinstance(text, bytes) else text.encode()), "base64 in another form")
    return raw

SECOND = 10 ** 9

def instant(text):  # nanoseconds since 1970 of a time in UTC
    m = re.fullmatch(r"((?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:)([0-5][0-9])(?:[.]([0-9]{0,8}[1-9]))?Z", text, re.A)
    want(m, "no time in UTC")
    try: return (calendar.timegm(time.strptime(m[1] + "00", "%Y-%m-%dT%H:%M:%S")) + int(m[2])) * SECOND + int((m[3] or "").ljust(9, "0"))
    except ValueError: raise Malformed("no such time")

ESCAPE = r'\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]|3c|3e|26)|u202[89])'
STRING = re.compile(r'"(?:[^\x00-\x1f"\\<>&\u2028\u2029]|%s)*"' % ESCAPE)
RECORDED = re.compile(r'"(?:[^\x00-\x1f"\\\u2028\u2029]|%s|\\ufffd)*"' % ESCAPE)  # records: <, > and & as they are, or escaped; U+FFFD too
NUMBER = re.compile(r"0|-?[1-9][0-9]*")
NAME = re.compile(r'"([a-z0-9_]{1,64})":')
KEYNAME = "[!-*,-~]{1,100}"
EMPTY = "", 0, None, [], False, "0001-01-01T00:00:00Z"

class Reader:  # reads JSON by a shape, as RecordSchema in audit/proof describes it, from the front
    def __init__(self, text, strings=STRING): self.text, self.at, self.strings = text, 0, strings
    def word(self, w):
        found = self.text.startswith(w, self.at)
        self.at += len(w) * found
        return found
    def token(self, pattern, what):
        m = pattern.match(self.text, self.at)
        want(m, "%s at character %d" % (what, self.at))
        self.at = m.end()
        return m[0]
    def string(self): return json.loads(self.token(self.strings, "no string"))
    def value(self, shape):
        if isinstance(shape, list): return None if self.word("null") else self.row(shape[0])
        if isinstance(shape, dict): return self.object(shape)
        if shape.endswith("?") and self.word("null"): return None
        return getattr(self, "read_" + shape.rstrip("?0123456789"))(shape.rstrip("?"))
    def read_string(self, _): return self.string()
    def read_int(self, shape):
        n, bits = int(self.token(NUMBER, "no number")), int(shape[3:])
        want(-1 << bits - 1 <= n < 1 << bits - 1, "a number that does not fit")
        return n
    def read_uint(self, shape):
        n = int(self.token(NUMBER, "no number"))
        want(0 <= n < 1 << int(shape[4:]), "a number that does not fit")
        return n
    def read_bool(self, _):
        yes = self.word("true")
        want(yes or self.word("false"), "neither true nor false")
        return yes
    def read_time(self, _):
        text = self.string()
        instant(text)
        return text
    def read_text(self, _):
        if not self.word('{"base64":'): return self.string()
        raw = self.read_bytes("")
        want(self.word("}"), "no end of bytes")
        try: raw.decode()
        except UnicodeDecodeError: return raw
        raise Malformed("UTF-8 as bytes")
    def read_bytes(self, _): return b64(self.token(re.compile('"[A-Za-z0-9+/=]*"'), "no base64")[1:-1])
    def read_hash(self, _):
        text = self.token(re.compile('"(?:[0-9a-f]{64})?"'), "no digest")[1:-1]
        want(text != "0" * 64, "a digest in another form")
        return text
    def read_losses(self, _):
        want(self.word("{"), "no object")
        all, last = {}, None
        while not self.word("}"):
            want(last is None or self.word(","), "no comma")
            stage = self.string()
            want(last is None or last.encode() < stage.encode(), "out of order")
            want(self.word(":"), "no colon")
            all[stage], last = self.object({"gaps": "uint64", "events": "uint64", "bytes": "int64"}), stage
        return all
    def row(self, shape):
        want(self.word("["), "no list")
        all = []
        while not self.word("]"):
            want(not all or self.word(","), "no comma")
            all.append(self.value(shape))
        return all
    def object(self, shape):
        want(self.word("{"), "no object")
        all, lacks, due = {}, False, [(name.rstrip("?"), name[-1] == "?", sub) for name, sub in shape.items()]
        while not self.word("}"):
            want(not all or self.word(","), "no comma")
            name = NAME.match(self.text, self.at)
            want(name, "no name at character %d" % self.at)
            if name[1] + "?" not in shape and name[1] not in shape: raise Newer(name[1])
            while due and due[0][0] != name[1]:
                lacks |= not due.pop(0)[1]
            want(due, name[1] + " comes twice, or out of order")
            self.at, (_, optional, sub) = name.end(), due.pop(0)
            all[name[1]] = v = self.value(sub)
            empty = v is None if isinstance(sub, str) and sub[-1] == "?" else type(v) is not dict and v in EMPTY or v == b""
            if isinstance(sub, str) and sub.rstrip("?") != "time" and v == EMPTY[-1]: empty = False
            want(not (optional and empty), name[1] + " says nothing")
        want(not lacks and all_optional(due), "a member is missing")
        return all

def all_optional(due): return all(optional for _, optional, _ in due)

def parse(data, shape, strings=STRING):
    try: r = Reader(data.decode() if isinstance(data, bytes) else data, strings)
    except UnicodeDecodeError: raise Malformed("not UTF-8")
    value = r.value(shape)
    want(r.at == len(r.text), "something follows")
    return value

RECORD = {"v":"int64","run":"string","seq":"uint64","time":"time","observer":"string","kind":"string","step?":"string","guest_time?":{"time":"time","offset_ns":"int64"},"lifecycle?":{"phase":"string","name?":"string","argv?":["text"],"env?":["text"],"tenant?":"string","project?":"string","template?":"string","template_digest?":"string","project_digest?":"string","project_version?":"uint64","project_author?":"string","narrowing_digest?":"string","parent?":{"op":"string","run":"string","seq":"uint64","root":"string","manifest":"string"},"policy_digest?":"string","ruleset_digest?":"string","tier?":"string","tier_note?":"string","mode?":"string","version?":"string","host?":"string","steps?":["string"],"secrets?":["string"],"exit_code?":"int64?","status?":"string","reason?":"string","duration_ns?":"int64"},"exec?":{"proc":"string","parent?":"string","pid":"int64","ppid":"int64","exe":"text","argv":["text"],"cwd":"text","uid":"int64","truncated?":"bool","argv_bytes?":"int64","argv_sha256?":"string","llm?":"string","tool_call?":"text"},"exit?":{"proc":"string","pid":"int64","code":"int64","signal?":"int64","duration_ns":"int64","synthetic?":"bool"},"file?":{"proc?":"string","pid?":"int64","parent?":"string","op":"string","path":"text","to?":"text","source?":"text","device?":"string","inode?":"string","size":"int64","sha256?":"string","unhashed?":"string","secrets?":["string"],"caller?":"text","offset?":"int64","error?":"text"},"flow?":{"id?":"string","proc?":"string","pid?":"int64","parent?":"string","state":"string","proto":"string","src_ip?":"string","src_port?":"int64","dst_ip?":"string","dst_port?":"int64","errno?":"int64","name?":"text","verdict?":"string","rule?":"string","reason?":"string","dns_seq?":"uint64","generation?":"uint32","peer?":"string","sni?":"text","bytes_out?":"uint64","bytes_in?":"uint64","packets_out?":"uint64","packets_in?":"uint64","duration_ns?":"int64","count?":"uint64"},"inbound?":{"id":"string","op":"string","port":"int64","who":"string","via":"string","bytes_in?":"int64","bytes_out?":"int64","reason?":"string","duration_ns?":"int64"},"dns?":{"name":"text","type":"string","proto?":"string","rcode":"string","answers?":["string"],"chain?":["text"],"ttl?":"uint32","verdict":"string","rule":"string","reason?":"string","synthetic?":"bool","dropped?":["string"],"upstream?":"string","cached?":"bool","latency_ns?":"int64","generation?":"uint32"},"http?":{"flow?":"string","proto?":"string","method":"text","host":"text","path":"text","status?":"int64","bytes_out?":"int64","bytes_in?":"int64","verdict":"string","rule":"string","reason?":"string","generation?":"uint32","duration_ns?":"int64","credential?":"string","redacted?":"int64","llm?":"string"},"llm?":{"id":"string","flow?":"string","provider":"string","api":"string","host":"text","model?":"text","input_tokens":"int64","output_tokens":"int64","cache_read_tokens?":"int64","cache_write_tokens?":"int64","reasoning_tokens?":"int64","tools?":["text"],"tool_calls?":[{"id?":"text","name":"text","sha256":"string","arguments?":"text","truncated?":"bool"}],"stop_reason?":"text","status?":"int64","error?":"text","stream?":"bool","retry?":"int64","request_sha256?":"string","incomplete?":"string","duration_ns":"int64","first_token_ns?":"int64","spent?":"int64","budget?":"int64"},"policy?":{"generation":"uint32","digest":"string","previous?":"string","rules?":["text"]},"probe?":{"name":"string","family?":"string","blocked":"bool","recorded":"bool","attacked?":"string","evidence?":"uint64","detail?":"text"},"output?":{"stream":"string","offset":"int64","text":"text"},"vm?":{"op":"string","driver?":"string","tier?":"string","reason?":"string","duration_ns?":"int64"},"copy?":{"direction":"string","op":"string","dir?":"text","first?":"int64","salt?":"string","files?":[{"path":"text","as?":"text","mode":"string","size":"int64","sha256?":"string","link?":"text"}],"count?":"int64","bytes?":"int64","root?":"string","reason?":"string"},"secret?":{"name?":"string","op":"string","broker?":"string","via?":"string","tag?":"string","accessor_sha256?":"string","ttl_ns?":"int64","expires?":"time","leases?":"int64","flow?":"string","host?":"text","reason?":"string"},"gap?":{"stage":"string","what?":"string","first?":"uint64","last?":"uint64","count":"uint64","bytes?":"int64","cause":"string"},"finding?":{"rule":"string","detail":"string","secret?":"string","proc?":"string","evidence?":"uint64","action?":"string"},"access?":{"who?":"string","via?":"string","role?":"string","tenant?":"string","action":"string","route":"string","about?":"text","query?":"text","remote?":"string","verdict":"string","reason?":"string","status?":"int64","count?":"uint64","project?":"string","project_version?":"uint64","project_digest?":"string"},"note?":{"who":"string","via":"string","role?":"string","tenant?":"string","about":"string","seq?":"uint64","leaf?":"string","text?":"text","tags?":["string"],"withdraws?":"string","remote?":"string"}}
PAYLOADS = {n[:-1] for n, s in RECORD.items() if n[-1] == "?" and isinstance(s, dict)} - {"guest_time"}
KINDS = PAYLOADS - {"lifecycle"} | {"run", "step"}
SUBJECT = {"run": "string", "head": "hash"}
STATEMENTS = {
    "manifest": {"v": "int64", "run": "string", "segment": "uint64", "first": "uint64", "last": "uint64", "count": "uint64", "bytes": "int64",
                 "prev": "hash", "root": "hash", "losses": "losses", "policy_digest": "string", "ruleset_digest": "string",
                 "template_digest": "string", "tier": "string", "tenant?": "string", "sealed_at": "time", "closing": "string"},
    "erasure": {"v": "int64", "run": "string", "seq": "uint64", "leaf": "hash", "kind": "string", "reason": "string", "by": "string", "time": "time"},
    "host": {"v": "int64", "host": "string", "key": "string", "time": "time"},
    "rotation": {"v": "int64", "old": "string", "new": "string", "time": "time"},
    "selection": {"v": "int64", "run": "string", "head": "hash", "records": "uint64", "withheld": "uint64", "digest": "hash", "what": "string",
                  "by": "string", "time": "time"},
    "attachments": {"v": "int64", "about": [SUBJECT], "files": [{"name": "string", "bytes": "int64", "sha256": "hash"}], "by": "string", "time": "time"},
    "trailer": {"v": "int64", "run": "string", "head": "hash", "files": "uint64", "bytes": "int64", "sha256": "hash"},
}
PATH = {"index": "uint64", "path": ["hash"]}
NOTE = {"note": "string", "log?": PATH}
PROOF = {"type": "string", "v": "int64", "run": "string", "seq": "uint64", "state": "string", "record?": "bytes", "salt?": "bytes", "leaf": "hash",
         "leaf_rule": "string", "erasure?": NOTE, "segment?": PATH, "manifest?": NOTE, "checkpoint?": "string", "stamp?": "bytes",
         "rotations?": [NOTE], "host_key?": "string"}

def scan(data):  # a record; None if a newer version wrote it, as far as its members show
    try: r = parse(data, RECORD, RECORDED)
    except Newer: return None
    want(r["observer"] in ("host", "guest"), "no such observer")
    payloads = PAYLOADS & r.keys()
    due = "lifecycle" if r["kind"] in ("run", "step") else r["kind"]
    want(r["kind"] not in KINDS or payloads == {due}, "not the payload of its kind")
    return r

# ---- Hashes, keys, signatures

def sha(data): return hashlib.sha256(data).digest()
def digest(text): return bytes.fromhex(text).ljust(32, b"\0")  # of a hash in JSON
def node(left, right): return sha(b"\x01" + left + right)
def half(n): return 1 << (n - 1).bit_length() - 1  # the largest power of two below n
def root(leaves):  # of a Merkle tree, RFC 6962, 2.1
    if len(leaves) < 2: return leaves[0] if leaves else sha(b"")
    return node(root(leaves[:half(len(leaves))]), root(leaves[half(len(leaves)):]))

def climb(m, n, path, leaf=None, old=None):
    """The roots of a tree's first m leaves and of all n: from leaf m-1 and its audit path (RFC 6962, 2.1.1), or from
    the root of the first m and a proof of consistency (2.1.2). Takes the hashes off the path's end."""
    if n == 1 or m == n and not leaf: return [leaf or old or path.pop()] * 2
    beside = path.pop()
    if m > half(n): return [node(beside, r) for r in climb(m - half(n), n - half(n), path, leaf)]
    before, now = climb(m, half(n), path, leaf, old)
    return [before, node(now, beside)]

def included(index, n, path, leaf, top):
    path = list(path)
    try: return index < n and climb(index + 1, n, path, leaf=leaf)[1] == top and not path
    except IndexError: return False

def continues(m, n, path, old, top):  # whether a tree of n leaves goes on from one of m
    path = list(path)
    try: return old == top if m == n else climb(m, n, path, old=old) == [old, top] and not path
    except IndexError: return False

CRC = []
for n in range(256):
    for _ in range(8): n = n >> 1 ^ 0x82f63b78 * (n & 1)
    CRC.append(n)

def crc32c(*parts):
    c = 0xffffffff
    for part in parts:
        for b in part: c = CRC[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xffffffff

def key(text, kind=1):  # NAME+HASH+KEY: how signatures name it, and its 32 bytes behind its kind (4: a witness's)
    want(re.fullmatch("%s[+][0-9a-f]{8}[+][A-Za-z0-9+/]{44}" % KEYNAME, text), "no public key")
    name, hashed, raw = text.split("+", 2)
    public = b64(raw)
    want(public[0] in (1, kind) and len(public) == 33 and sha(name.encode() + b"\n" + public)[:4].hex() == hashed, "no public key")
    public = bytes([kind]) + public[1:]
    return (name, sha(name.encode() + b"\n" + public)[:4]), public

@functools.lru_cache(maxsize=10000)
def ed25519(public, message, signature):
    command = "openssl pkeyutl -verify -pubin -keyform DER -inkey key -rawin -in text -sigfile sig"
    der = bytes.fromhex("302a300506032b6570032100") + public  # RFC 8410
    with tempfile.TemporaryDirectory() as room:
        for n, data in ("key", der), ("text", message), ("sig", signature): pathlib.Path(room, n).write_bytes(data)
        answer = subprocess.run(command.split(), cwd=room, capture_output=True)
    check(b"Signature Verif" in answer.stdout or len(signature) != 64, "this openssl cannot check Ed25519: %r" % answer.stderr, 2)
    return answer.returncode == 0

def note(data, keys):  # a signed note's lines, those of its signers that are known, and those that are not
    text, gap, signatures = data.partition(b"\n\n")
    want(text and gap and signatures.endswith(b"\n") and not re.search(rb"[\x00-\x09\x0b-\x1f]", data), "no signed note")
    text, lines, known, others = text + b"\n", signatures[:-1].split(b"\n"), [], []
    data.decode()
    want(len(lines) <= 100, "too many signatures")
    for line in lines:
        m = re.fullmatch(b"\xe2\x80\x94 (%s) ([A-Za-z0-9+/]+={0,2})" % KEYNAME.encode(), line)
        want(m, "no signature line")
        raw = b64(m[2])
        who, signature, message = (m[1].decode(), raw[:4]), raw[4:], text
        want(signature and who not in [w for w, _ in known + others], "a signature that is empty, or comes twice")
        if who not in keys:
            others.append((who, raw))
            continue
        if keys[who][0] == 4:  # C2SP tlog-cosignature: the time comes first
            want(len(signature) == 72, "no cosignature")
            message = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big") + text
            signature = signature[8:]
        want(ed25519(keys[who][1:], message, signature), "not what %s signed" % who[0])
        known.append((who, raw))
    return text.decode().split("\n")[:-1], known, others

def statement(data, keys, kind):  # its contents, its signer, and whether that key is known
    (head, line), known, others = note(data, keys)
    try: value = parse(line, STATEMENTS[kind])
    except Newer: raise Malformed("a statement of another form")
    want((head, value["v"], len(known + others)) == ("custody %s v1" % kind, 1, 1), "no statement of the kind " + kind)
    if kind == "manifest": want(re.fullmatch("[0-9A-Za-z._-]{1,128}", value["run"]) and value["closing"] in ("", "sealed", "interrupted"), "no manifest")
    if kind == "host": want(key(value["key"])[0][0] == value["host"], "no statement about a host's key")
    if kind == "manifest": want(max(value[n] for n in ("segment", "first", "last", "count")) < 1 << 63 and (value["count"] or value["closing"]), "no manifest")
    if kind == "rotation":
        (old, _), (new, _) = key(value["old"]), key(value["new"])
        want(old[0] == new[0] and value["old"] != value["new"] and old == (known + others)[0][0], "no rotation of a key")
    if kind == "attachments":
        names = [f["name"] for f in value["files"] or []]
        want(value["about"] and 1 <= len(names) <= 64 and names == sorted({*names}) and all(map(attachable, names)), "no attachments")
        want(len({n.lower() for n in names}) == len(names), "two names that differ in case only")
        want(all(1 <= f["bytes"] <= 64 << 20 for f in value["files"]), "an attached file of another length")
    return value, (known + others)[0][0], bool(known)

def attachable(name): return re.fullmatch("report/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name)

def ring(statements, keys):  # follows the rotations from the keys that are known; returns the keys that are only named
    left, following, named, progress = list(statements), {}, {}, True
    want(len(left) <= 1000, "too many rotations")
    while progress:
        progress = False
        for data in list(left):
            r, by, known = statement(data, keys, "rotation")
            if not known: named.update([key(r["old"])])
            else:
                want(following.setdefault(by, r) == r, "a key has two successors")
                keys.update([key(r["new"])])
                left.remove(data)
                progress = True
    return named, following

def premature(m, by, following):  # a manifest that says it was sealed before a rotation led to the key
    since = [instant(r["time"]) for r in following.values() if key(r["new"])[0] == by]
    return since and instant(m["sealed_at"]) < max(since) - 600 * SECOND

def entry(kind, *words): return ("custody leaf v1\n" + " ".join([kind, *map(str, words)]) + "\n").encode()

def checkpoint(data, host, keys, witnesses):  # size, root and the known signers
    lines, known, _ = note(data, {**keys, **witnesses})
    want(len(lines) == 3 and re.fullmatch(KEYNAME, lines[0]) and re.fullmatch("0|[1-9][0-9]{0,19}", lines[1]) and int(lines[1]) < 1 << 64, "no checkpoint")
    want(lines[0] == host and any(w[0] == host and w not in witnesses for w, _ in known), "checkpoint forged or of another log")
    want(len(b64(lines[2])) == 32, "no root")
    return int(lines[1]), b64(lines[2]), {w: raw for w, raw in known if w in witnesses and w not in keys}

def cosigned_at(signers, quorum):  # when so many had cosigned, or all that did
    times = sorted(min(int.from_bytes(raw[4:12], "big"), 253402300799) for raw in signers.values())  # the end of the year 9999
    return times[min(max(quorum, 1), len(times)) - 1] * SECOND if times else None

SKEW = 300 * SECOND  # clocks may be so far apart

def erasure(data, host, run, seq, keys):
    e, by, known = statement(data, keys, "erasure")
    want(known and by[0] == host and (e["run"], e["seq"]) == (run, seq), "erasure forged, or of another record")
    want(e["kind"] in KINDS - {"run", "step", "policy", "gap", "vm"}, "a record was erased that has to stay")
    return e

# ---- The proof of one record

def record(data, keys, witnesses, quorum, since, within, _):
    want(data[-1:] == b"\n" and len(data) <= 2 * (4 << 20) + (1 << 20), "no proof of a record")
    p, doubts = parse(data[:-1], PROOF), []
    run, seq, leaf, state, erased = p["run"], p["seq"], digest(p["leaf"]), p["state"], "erasure" in p
    sealed, logged, m = state != "open", state == "logged", p.get("manifest")
    want((p["type"], p["v"], p["leaf_rule"]) == ("custody record proof", 1, "SHA-256(0x00 || salt || record)"), "no proof of a record")
    want(0 < seq < 1 << 63, "no such record")
    want(state in ("open", "sealed", "logged") and erased != ("record" in p) and erased != ("salt" in p) and (sealed or not erased), "no such state")
    want(erased or len(p["salt"]) == 16 and len(p["record"]) <= 4 << 20, "no such record")
    want(sealed == bool(m) == ("segment" in p) and logged == ("checkpoint" in p) and (not sealed or logged == ("log" in m)), "no such state")
    want(logged or not ({"rotations", "stamp"} & p.keys() or erased and "log" in p["erasure"]), "no such state")
    notes = p.get("rotations", []) + [p[n] for n in ("manifest", "erasure") if n in p]
    paths = [n["log"] for n in notes if "log" in n] + [p[n] for n in ("segment",) if n in p]
    want(len({n["note"] for n in p.get("rotations", [])}) == len(p.get("rotations", [])), "a rotation comes twice")
    want(all(len(n["note"].encode()) <= 64 << 10 for n in notes) and all(x["path"] is not None and len(x["path"]) <= 64 for x in paths), "too long")
    want(len(p.get("checkpoint", "").encode()) <= 64 << 10 and len(p.get("stamp", b"")) <= 64 << 10, "too long")
    under = lambda place, n, leaf, top: place and included(place["index"], n, [digest(h) for h in place["path"]], leaf, top)
    _, following = ring([n["note"].encode() for n in p.get("rotations", [])], keys)
    if not erased:
        check(sha(b"\0" + p["salt"] + p["record"]) == leaf, "record altered: it does not give the leaf")
        check(p["record"].startswith(('{"v":1,"run":"%s","seq":%d,' % (run, seq)).encode()), "the record is another")
        r = scan(p["record"])
        if not r or r["kind"] not in KINDS: doubts.append("a newer version wrote the record")
    if sealed:
        manifest = p["manifest"]["note"].encode()
        m, by, known = statement(manifest, keys, "manifest")
        check(known, "the manifest is not signed by a key which is trusted here", 2)
        check(m["run"] == run and m["count"] and m["first"] <= seq <= m["last"], "the manifest is over other records")
        check(not premature(m, by, following), "signed by a key that the host did not have yet")
        check("host_key" not in p or key(p["host_key"])[0] in keys and key(p["host_key"])[0][0] == by[0], "host key of another")
        at = p["segment"]["index"]
        check(under(p["segment"], m["count"], leaf, bytes.fromhex(m["root"])), "record altered: not in the signed segment")
        check(at <= seq - m["first"] and m["count"] - at <= m["last"] - seq + 1, "record out of its place")
        entries = [(p["manifest"].get("log"), entry("manifest", run, m["segment"], sha(manifest).hex()))]
        entries += [(n.get("log"), entry("rotation", sha(n["note"].encode()).hex())) for n in p.get("rotations", [])]
        if erased:
            e = erasure(p["erasure"]["note"].encode(), by[0], run, seq, keys)
            check(e["leaf"] == p["leaf"], "erasure of another record")
            entries.append((p["erasure"].get("log"), entry("erasure", run, seq, sha(p["erasure"]["note"].encode()).hex())))
    if logged:
        size, top, signers = checkpoint(p["checkpoint"].encode(), by[0], keys, witnesses)
        check(len(signers) >= quorum, "too few witnesses: %d" % len(signers))
        kept = checkpoint(since, by[0], keys, witnesses)[:2] if since is not None else (0, None)
        check(kept[0] == 0 or kept == (size, top), "no proof that the log went on")
        for place, e in entries: check(under(place, size, sha(b"\0" + e), top), "not in the log")
    check(sealed, "the record is written, nothing is signed yet", 2)
    check(logged, "the record is signed, and not under a checkpoint yet", 2)
    check(not doubts, "".join(doubts), 2)
    gone = ", erased" if erased else ""
    print(f"HOLDS: run {run}, seq {seq}{gone}, log of {size} entries, {len(signers)} witnesses")

# ---- Bundles

def header(name, size):  # of a file in a tar archive: there is one form only
    parts = name.ljust(100, b"\0"), b"0000644\0" + 2 * b"0000000\0", b"%011o\0" % size + b"0" * 11 + b"\0"
    rest = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(72, b"\0") + 2 * b"0000000\0"
    rest = rest.ljust(512 - 156, b"\0")
    return b"".join(parts) + b"%06o\0 " % (sum(b"".join(parts) + b" " * 8 + rest)) + rest

K, SEGMENT = 1 << 10, (64 << 20) + (4 << 20) + (1 << 10)
LIMITS = {"README.txt": 64 * K, "host.pub": 64 * K, "checkpoint.tsr": 64 * K, "checkpoint": 64 * K, "since": 64 * K, "consistency": 80 * K,
          "selection": 64 * K, "attachments": 64 * K, "trailer": 64 * K}
NUMBERED = {"seg": SEGMENT, "leaves": SEGMENT, "manifest": 64 * K, "erasure": 64 * K, "rotation": 64 * K, "host": 64 * K,
            "tlog-proof": 80 * K, "erasure.tlog-proof": 80 * K, "rotation.tlog-proof": 80 * K,
            "witnessed": 80 * K, "witnessed.tsr": 64 * K, "ancestor": (8 << 30) - 1}

FILES, BYTES = 5_000_000, 64 << 30  # of all files of a bundle

def limit(name):  # how long a file of that name may be, 0 if a bundle has none
    number, _, suffix = name.partition(".")
    if re.fullmatch("[0-9]{20}", number) and int(number) < 1 << 64: return NUMBERED.get(suffix, 0)
    return LIMITS.get(name, (64 << 20) * bool(attachable(name)))

def zipped(data):  # whether programs that read zip files find one at the end
    at = data.find(b"PK\5\6", max(0, len(data) - (128 << 10)))
    while 0 <= at <= len(data) - 22:
        length, offset = struct.unpack_from("<II", data, at + 12)
        places = (at - length, b"PK\1\2"), (offset, b"PK\1\2"), (at - 20, b"PK\6\7")  # the last: of Zip64
        if any(data[max(p, 0):max(p, 0) + 4] == magic for p, magic in places): return True
        at = data.find(b"PK\5\6", at + 1)
    return False

def unpack(data):  # the files of a bundle, and where the header of the last one begins
    files, at, last, start, total = {}, 0, "", 0, 0
    while data[at:at + 512].strip(b"\0"):
        name, size = data[at:at + 100].rstrip(b"\0"), data[at + 124:at + 135]
        want(re.fullmatch(b"[0-7]{11}", size) and data[at:at + 512] == header(name, int(size, 8)), "no bundle: a header at byte %d" % at)
        size, start, before, last = int(size, 8), at, last, name.decode()
        want(last > before and size <= limit(last) > 0 and len(data) >= at + 512 + size, "no bundle: %r is cut, too long, not in order or no part of one" % last)
        files[last] = data[at + 512:at + 512 + size]
        total += size
        want(len(files) <= FILES and total <= BYTES, "no bundle: it holds too much")
        at += 512 + size + -size % 512
        want(not data[at - (-size % 512):at].strip(b"\0"), "no bundle: padding behind " + last)
    want(not zipped(data), "no bundle: it is a zip file as well")
    want(data[at:] == bytes(1024) and last == "trailer", "no bundle: it does not end as bundles do")
    want(files.get("host.pub", b"\n").endswith(b"\n"), "host.pub is not one line")
    want({"README.txt", "host.pub"} < files.keys() and ("since" in files) == ("consistency" in files), "no bundle: a file is missing")
    return files, start

def walk(data, leaves, run):  # the frames of a segment: leaf, seq, "F" shown, "E" erased or "H" withheld, and the record
    at, start = 0, ('{"v":1,"run":"%s","seq":' % run).encode()
    for leaf in leaves:
        want(len(data) - at >= 29, "record missing")
        magic, size, crc = struct.unpack_from("<4sII", data, at)
        body = data[at + 12:at + 29 + size]
        want(size <= 4 << 20 and len(body) == 17 + size and crc32c(data[at + 4:at + 8], body) == crc, "record altered: its frame is another")
        at += 29 + size
        if magic == b"CWF1":
            want(body[:1] == b"\0" and sha(body) == leaf, "record altered, missing, inserted or out of order")
            seq = re.match(b"([1-9][0-9]*),", body[17 + len(start):])
            want(body[17:].startswith(start) and seq and int(seq[1]) < 1 << 63, "record of another run")
            yield leaf, int(seq[1]), "F", body[17:]
        else:  # the rest: as the statement has it; or the maker of the bundle withheld it
            want(magic in (b"CWE1", b"CWH1") and len(body) >= 41 + len(run), "record altered")
            seq = struct.unpack_from("<Q", body, 32)[0]
            rest = leaf + struct.pack("<QB", seq, len(run)) + run.encode()
            want(0 < seq < 1 << 63 and body == rest.ljust(size + 17, b"\0"), "erased or withheld record altered")
            yield leaf, seq, chr(magic[2]), None
    want(at == len(data), "appended to a segment")

def signed(n): return (n + (1 << 63)) % (1 << 64) - (1 << 63)  # sums wrap at 64 bits
def text(v): return v.encode() if isinstance(v, str) else v

def copied(rows):  # whether the files of each copy give its root
    listed, good = {}, True
    for c in rows:
        if c["op"] not in ("list", "end"): continue
        state = listed.setdefault(c["direction"], {"files": [], "bytes": 0})
        files = state["files"]
        if c["op"] == "end":
            said = c.get("count", 0), c.get("bytes", 0), c.get("root", "")
            good = good and said == (len(files), state["bytes"], root(files).hex())
            del listed[c["direction"]]
            continue
        good = good and c.get("first", 0) == len(files) and re.fullmatch("[0-9a-fA-F]{32}", c.get("salt", ""))
        for f in c.get("files", []) if good else []:
            words = text(f["path"]), text(f.get("as", "")), text(f["mode"]), text(str(f["size"]))
            words += text(f.get("sha256", "")), text(f.get("link", ""))
            files.append(sha(b"\0" + bytes.fromhex(c["salt"]) + b"\0".join(words)))
            state["bytes"] = signed(state["bytes"] + f["size"])
    return good

class Segments:  # what the records say, over all segments
    def __init__(self, run, erasures):
        self.run, self.erasures, self.last, self.strange, self.seen = run, erasures, 0, None, set()
        self.holes, self.excuses, self.copies, self.gone, self.kinds, self.hidden, self.masked = [], [], [], 0, set(), 0, hashlib.sha256()
        self.start = None  # the lifecycle of the run's start
    def take(self, m, data, sums):
        leaves = [sums[n:n + 32] for n in range(0, len(sums), 32)]
        check((len(leaves), len(data)) == (m["count"], m["bytes"]) and not len(sums) % 32 and root(leaves).hex() == m["root"], "leaves altered")
        losses, strange, first, at = {}, None, self.last + 1, self.last
        self.began, self.oldest = instant(m["sealed_at"]), None
        for i, (leaf, seq, magic, record) in enumerate(walk(data, leaves, self.run)):
            check(seq > at, "records out of order")
            if i == 0: first = seq
            if seq > at + 1: self.holes.append((at + 1, seq - 1))
            at = seq
            strange = self.frame(i, leaf, seq, magic, record, losses) or strange
        check((first, at) == (m["first"], m["last"]), "first or last is wrong")
        check(strange or losses == m["losses"], "gap records declare other losses than the manifest")
        self.last, self.strange = at, self.strange or strange
    def frame(self, i, leaf, seq, magic, record, losses):  # returns what leaves the question open
        e = self.erasures.get(seq)
        check(not e or digest(e["leaf"]) == leaf, "erasure of another record")
        if e: self.seen.add(seq)
        if magic == "H":
            self.hidden += 1
            self.masked.update(struct.pack("<Q", seq) + leaf)
        if magic == "E":
            check(e, "record erased without a statement")
            self.gone += 1
            self.kinds.add(e["kind"])
        if magic != "F": return None
        try: r = scan(record)
        except Malformed as x: check(False, "record malformed: seq %d: %s" % (seq, x))
        if r or early(record):
            at = instant((r or early(record))["time"])
            if i == 0: self.began = at
            self.oldest = at if self.oldest is None else min(at, self.oldest)
        if not r: return "seq %d has a field that is not known" % seq
        check(not e or e["kind"] == r["kind"], "erasure of another record")
        if r["kind"] == "gap":
            g = r["gap"]
            sums = losses.setdefault(g["stage"], {"gaps": 0, "events": 0, "bytes": 0})
            for name, n in ("gaps", 1), ("events", g["count"]): sums[name] = (sums[name] + n) % (1 << 64)
            sums["bytes"] = signed(sums["bytes"] + g.get("bytes", 0))
            if r["observer"] == "host" and g["stage"] == "wal": self.excuses.append((g.get("first", 0), g.get("last", 0)))
        if r["kind"] == "copy": self.copies.append(r["copy"])
        if r["kind"] == "run" and r["lifecycle"]["phase"] == "start": self.start = self.start or r["lifecycle"]
        return None if r["kind"] in KINDS else "seq %d is of a kind that is not known" % seq

def declared(holes, gaps):  # whether each hole lies in a gap
    gaps, last = sorted(gaps, reverse=True), 0
    for a, b in holes:
        while gaps and gaps[-1][0] <= a: last = max(last, gaps.pop()[1])
        if last < b: return False
    return True

def early(record):  # the time of a record that cannot be read to its end
    m = re.match(rb'\{"v":-?[0-9]+,"run":"[^"]*","seq":[0-9]+,"time":("[^"]*"),', record)
    return m and {"time": json.loads(m[1])}

def bundle(data, *trust):
    found = single(data, *trust)
    about, older, doubts = found["about"], found["parent"], found["doubts"]
    lineage, ended, seen, ancestors = [], False, {found["run"]}, found["ancestors"]
    while older:  # from the parent to the root ancestor
        check(older["run"] not in seen, "a run is its own ancestor: " + older["run"])
        seen.add(older["run"])
        raw = ancestors.get("%020d.ancestor" % (len(lineage) + 1)) if len(lineage) < GENERATIONS else None
        lineage.append("%(op)s of %(run)s, last manifest %(manifest)s" % older)
        if raw is None:
            lineage[-1] += ", whose record is not here"
            older = None
            continue
        check(ending(raw) == {**older, "op": ""}, "the record of %(run)s is not the one that its child states" % older)
        del ancestors["%020d.ancestor" % len(lineage)]
        name, older = older["run"], None
        try: found = single(raw, *trust)
        except Found as f:
            check(f.status == 2, "ancestor %s: %s" % (name, f.finding))
            found = {"doubts": [f.finding], "parent": None, "about": "", "ancestors": {}}
        check(not found["ancestors"], "ancestor %s has ancestors of its own" % name)
        doubts += ["ancestor %s: %s" % (name, d) for d in found["doubts"]]
        older, ended = found["parent"], bool(found["doubts"]) and not found["parent"]
    check(ended or not ancestors, "files that belong to nothing: " + ", ".join(ancestors))
    check(not doubts, "; ".join(doubts), 2)
    print("HOLDS: " + "; ".join([about] + lineage))

GENERATIONS = 1000

def ending(data):  # what a child states of the run of this bundle
    files, _ = unpack(data)
    names = sorted(n for n in files if re.fullmatch("[0-9]{20}[.]manifest", n))
    check(names, "the record of an ancestor has no manifest")
    m, _, _ = statement(files[names[-1]], {}, "manifest")
    check(m["closing"], "the record of an ancestor is not closed")
    return {"op": "", "run": m["run"], "seq": m["last"], "root": m["root"] or "0" * 64, "manifest": sha(files[names[-1]]).hex()}

def single(data, keys, witnesses, quorum, kept, within, roots):  # a run without its ancestors
    (files, end), doubts, places, keys = unpack(data), [], {}, dict(keys)
    said, total = files.pop("trailer"), len(files)
    numbers = lambda suffix: sorted(n for n in files if re.fullmatch("[0-9]{20}[.]" + suffix, n))
    entries = {}
    stated = numbers("host")
    want(len(stated) <= 1000, "too many statements about hosts")
    for name in stated:
        h, _, known = statement(files.pop(name), roots, "host")
        if known: keys.setdefault(*key(h["key"]))
    named, following = ring([files[n] for n in numbers("rotation")], keys)
    rotated = numbers("rotation")
    once = len({files[n] for n in rotated}) == len(rotated)
    for name in rotated: entries[name] = entry("rotation", sha(files.pop(name)).hex())
    manifests = [(name, files[name], *statement(files[name], keys, "manifest")) for name in numbers("manifest")]
    check(manifests or not numbers("seg"), "tail cut: there is no manifest")
    check(manifests, "there is no record", 2)
    signers = [by for *_, by, known in manifests if known]
    check(len({by[0] for by in signers}) < 2, "manifests of two hosts")
    check(signers, "no manifest is signed by a key which is trusted here", 2)
    check(len(signers) == len(manifests), "manifest forged")
    for _, _, m, by, _ in manifests: check(not premature(m, by, following), "signed by a key that the host did not have yet")
    host, run, prev = signers[0][0], manifests[0][2]["run"], ""
    for i, (name, raw, m, _, _) in enumerate(manifests):
        chain = m["run"], m["segment"], m["prev"], "%020d.manifest" % m["first"]
        check(chain == (run, i, prev, name), "manifest missing, of another run or out of chain")
        check(not m["closing"] or i == len(manifests) - 1, "a manifest behind the end")
        prev = sha(raw).hex()
        entries[name[:20]] = entry("manifest", run, i, prev)
        del files[name]
    public = files.pop("host.pub")
    check(public.endswith(b"\n") and key(public[:-1].decode())[0] in keys, "host key of another")
    check(key(public[:-1].decode())[0] == manifests[0][3], "host key of another host, or not the one that signed first")
    check(stated == ["%020d.host" % (i + 1) for i in range(len(stated))], "statements about hosts are not numbered from 1")
    check(rotated == ["%020d.rotation" % (i + 1) for i in range(len(rotated))] and once, "rotations are not numbered from 1, or one comes twice")
    selected = files.pop("selection", None)
    if selected is not None:
        s, by, known = statement(selected, keys, "selection")
        check(known and (by[0], s["run"], s["head"]) == (host, run, prev), "selection forged, or of another run")
    erasures = {}
    for name in numbers("erasure"):
        seq = int(name[:20])
        erasures[seq] = erasure(files[name], host, run, seq, keys)
        entries[name] = entry("erasure", run, seq, sha(files.pop(name)).hex())
    seen, oldest = Segments(run, erasures), []
    for i, (name, _, m, by, _) in enumerate(manifests):
        first = name[:20]
        check(first + ".seg" in files or not m["count"], "segment missing")
        seen.take(m, files.pop(first + ".seg", b""), files.pop(first + ".leaves", b""))
        oldest.append(seen.oldest)
        if i == 0:
            for *_, by, _ in manifests:
                check(by not in following or seen.began <= instant(following[by]["time"]) + 600 * SECOND, "signed by a key that was retired")
    check(selected or not seen.hidden, "records are withheld without a statement")
    if seen.strange: doubts.append(seen.strange)
    check(seen.strange or declared(seen.holes, seen.excuses), "seqs are missing that no gap declares")
    check(m["closing"] and not numbers("seg"), "tail cut, or a segment behind the end")
    count = sum(m["count"] for _, _, m, _, _ in manifests)
    if selected: check((s["records"], s["withheld"], s["digest"]) == (count, seen.hidden, seen.masked.hexdigest()), "selection of other records")
    check(seen.seen == erasures.keys(), "erasure of a record that is not there")
    blind = seen.strange or seen.hidden or seen.holes or "copy" in seen.kinds
    check(blind or copied(seen.copies), "the files of a copy do not give its root")
    attached = {n: files.pop(n) for n in [*files] if attachable(n)}
    stated = files.pop("attachments", None)
    if stated is not None:
        a, by, known = statement(stated, keys, "attachments")
        check(known and by[0] == host and {"run": run, "head": prev} in a["about"], "attachments forged, or about another run")
        for f in a["files"]:
            own = attached.pop(f["name"], b"")
            check((len(own), sha(own).hex()) == (f["bytes"], f["sha256"]), f["name"] + " is not what was attached")
    check(not attached, "a file is attached that no statement names")
    def proof(start, name):  # what its start says, and its path; every proof ends with the checkpoint
        found = re.fullmatch(start + b"\n((?:[A-Za-z0-9+/]{43}=\n){0,64})\n" + re.escape(signed), files.pop(name, b""))
        check(found and int(found[1]) < 1 << 64, name + ": no such proof under this checkpoint")
        return int(found[1]), [b64(h) for h in found[2].split()]
    NUM = b"(0|[1-9][0-9]{0,19})"
    check("checkpoint" in files, "the checkpoint is missing")
    signed, since = files.pop("checkpoint"), files.pop("since", None)
    size, top, cosigners = checkpoint(signed, host, keys, witnesses)
    check(len(cosigners) >= quorum, "too few witnesses: %d" % len(cosigners))
    step = proof(b"old " + NUM, "consistency") if since is not None else None
    kept_at = None
    for old, others in ((since, named), (kept, {})):
        if old is None: continue
        n, before, by = checkpoint(old, host, {**keys, **others}, witnesses)
        if old is since: check(step[0] == n, "the consistency is about another tree")
        check(n < size or (n, before) == (size, top), "log rolled back or forked")
        if 0 < n < size:
            check(step and step[0] == n, "there is no proof that the log went on")
            check(continues(n, size, step[1], before, top), "log forked")
        elif old is since: check(not step[1], "a proof of nothing")
        if old is kept: kept_at, kept_size = cosigned_at({w: raw for w, raw in by.items() if w not in keys}, quorum), n
    for name, e in entries.items():
        extra = re.escape(base64.b64encode(e))
        i, path = proof(b"c2sp[.]org/tlog-proof@v1\nextra " + extra + b"\nindex " + NUM, name + ".tlog-proof")
        check(included(i, size, path, sha(b"\0" + e), top), name + ": not in the log")
        places[name] = i
    shown = [(size, cosigned_at(cosigners, quorum))] if len(cosigners) >= quorum else []
    for name, *_ in manifests:  # checkpoints from before, by which the manifest was in the log
        name = name[:20] + ".witnessed"
        if name not in files: continue
        found = re.fullmatch(b"custody witnessed v1\n((?:[A-Za-z0-9+/]{43}=\n){0,64})\n(.*)", files.pop(name), re.S)
        check(found, name + ": malformed")
        files.pop(name + ".tsr", None)
        (n, before, by), path = checkpoint(found[2], host, keys, witnesses), [b64(h) for h in found[1].split()]
        check(places[name[:20]] < n <= size, name + ": does not cover the manifest")
        check(continues(n, size, path, before, top) and (n < size or not path), name + ": log forked")
        if len(by) >= quorum: shown.append((n, cosigned_at(by, quorum)))
    ages = [(places[name[:20]], instant(m["sealed_at"]), age) for (name, _, m, _, _), age in zip(manifests, oldest)]
    shown, first = sorted(c for c in shown if c[1] is not None), None  # the bundle's own checkpoint counts too
    for place, sealed, age in sorted(ages, key=lambda a: -a[0]):
        while shown and shown[-1][0] > place:
            at = shown.pop()[1]
            first = at if first is None else min(first, at)
        accepted = first is not None and first - within * SECOND
        check(first is None or sealed >= accepted, "witnesses saw a manifest long after it says that it was sealed")
        check(first is None or age is None or age >= accepted, "witnesses saw a record long after it says that it was written")
    for seq, e in erasures.items():
        young = kept_at and places["%020d.erasure" % seq] >= kept_size
        check(not young or instant(e["time"]) >= kept_at - within * SECOND, "an erasure in the log is younger than it says")
    for place, sealed, age in ages:
        young = kept_at and place >= kept_size
        check(not young or sealed >= kept_at - SKEW, "an entry of the log is younger than it says")
        check(not young or age is None or age >= kept_at - within * SECOND, "a record in the log is younger than it says")
    ancestors = {n: files.pop(n) for n in numbers("ancestor")}
    check(files.keys() <= {"README.txt", "checkpoint.tsr"}, "files that belong to nothing: " + ", ".join(files))
    t, by, known = statement(said, keys, "trailer")
    about = t["run"], t["head"], t["files"], t["bytes"], t["sha256"]
    check(about == (run, prev, total, end, sha(data[:end]).hex()), "the bundle is not what its trailer signs")
    if not known: doubts.append("the trailer is not signed by a key which is trusted here")
    shown = f", {count - seen.hidden - seen.gone} of {count} records shown, the others withheld" if selected else ""
    text = f"run {run}, {count} records{shown}, {seen.gone} erased, head {prev}, log of {size} entries, {len(cosigners)} witnesses"
    return {"run": run, "about": text, "parent": (seen.start or {}).get("parent"), "ancestors": ancestors, "doubts": doubts}

def main(file="", *options):
    given = {"--key": [], "--fleet-key": [], "--witness": [], "--quorum": ["0"], "--since": [], "--within": ["86400"]}
    check(len(options) % 2 == 0 and {*options[::2]} <= {*given}, __doc__, 2)
    for option, value in zip(options[::2], options[1::2]): given[option].append(value)
    read = lambda value: (open(value).read() if os.path.exists(value) else value).strip(" \t\r\n")
    kinds = ("--key", 1), ("--witness", 4), ("--fleet-key", 1)
    try: named = [{key(read(k), kind) for k in given[o]} for o, kind in kinds]
    except (Malformed, ValueError): check(False, "no public key", 2)
    check(all(len(dict(all)) == len(all) for all in named), "two keys of one name and hash", 2)
    keys, witnesses, roots = map(dict, named)
    check(re.fullmatch("[0-9]{1,9}", given["--quorum"][-1]), "the quorum is no number", 2)
    quorum = int(given["--quorum"][-1]) or len(witnesses)
    check(quorum <= len(witnesses), "the quorum is larger than the number of witnesses", 2)
    within = int(given["--within"][-1]) if re.fullmatch("[1-9][0-9]{0,9}", given["--within"][-1]) else 0
    check(0 < within <= 9223372036, "--within is no number of seconds, at most 292 years", 2)
    since = [pathlib.Path(name).read_bytes() for name in given["--since"][-1:]] or [None]
    check(os.path.isfile(file), "%s is not a regular file" % file, 2)
    data = pathlib.Path(file).read_bytes()
    what = record if data[:1] == b"{" else bundle
    what(data, keys, witnesses, quorum, since[0], within, roots)

def run():
    try:
        main(*sys.argv[1:])
        return
    except Found as f: finding, status = f.finding, f.status
    except Newer as e: finding, status = "malformed: %s is not known" % e, 1
    except Exception as e: finding, status = "cannot be read: %r" % e, 2 if isinstance(e, (OSError, MemoryError)) else 1
    print(("DOES NOT HOLD: ", "CANNOT BE JUDGED: ")[status - 1] + finding)
    sys.exit(status)
if __name__ == "__main__": run()
