#!/usr/bin/env python3
"""verify.py BUNDLE|PROOF.json --key host.pub [--key ...] [--witness KEY ... --quorum N] [--since CHECKPOINT]
[--within SECONDS]
Checks a bundle, or the proof of one record, with Python, openssl and nothing of custody's; docs/verify.md says
what the steps mean. A key is a file or the key itself. Exit status: 0 it holds, 1 it does not, 2 it cannot be judged."""
import base64, calendar, hashlib, json, os, pathlib, re, struct, subprocess, sys, tempfile, time

def check(ok, finding, status=1):
    if not ok:
        print(("DOES NOT HOLD: ", "CANNOT BE JUDGED: ")[status - 1] + finding)
        sys.exit(status)

def b64(text): return base64.b64decode(text, validate=True)
def sha(data): return hashlib.sha256(data).digest()
def node(left, right): return sha(b"\x01" + left + right)
def half(n): return 1 << (n - 1).bit_length() - 1  # the largest power of two below n
def root(leaves):  # of a Merkle tree, RFC 6962, 2.1
    if len(leaves) < 2: return leaves[0] if leaves else sha(b"")
    return node(root(leaves[:half(len(leaves))]), root(leaves[half(len(leaves)):]))

def text(v): return v.encode() if isinstance(v, str) else b64(v["base64"])
def copied(rows):  # the files of each copy give its root
    listed = {}
    for c in rows:
        files = listed.setdefault(c["direction"], [])
        if c["op"] == "end":
            said = c.get("count", 0), c.get("bytes", 0), c["root"]
            there = len(files), sum(f["size"] for f, _ in files), root([leaf for _, leaf in files]).hex()
            check(said == there, "the files of a copy do not give its root")
            del listed[c["direction"]]
        if c["op"] != "list": continue
        check(c.get("first", 0) == len(files), "the files of a copy are not all listed")
        for f in c.get("files", []):
            words = text(f["path"]), text(f.get("as", "")), text(f["mode"]), text(str(f["size"]))
            words += text(f.get("sha256", "")), text(f.get("link", ""))
            files.append((f, sha(b"\0" + bytes.fromhex(c["salt"]) + b"\0".join(words))))

def climb(m, n, path, leaf=None, old=None):
    """The roots of a tree's first m leaves and of all n: from leaf m-1 and its audit path (RFC 6962, 2.1.1), or from
    the root of the first m and a proof of consistency (2.1.2). Takes the hashes off the path's end."""
    if n == 1 or m == n and not leaf: return [leaf or old or path.pop()] * 2
    beside = path.pop()
    if m > half(n): return [node(beside, r) for r in climb(m - half(n), n - half(n), path, leaf)]
    before, now = climb(m, half(n), path, leaf, old)
    return [before, node(now, beside)]

def key(text, kind=1):  # NAME+HASH+KEY: how signatures name it, and its 32 bytes behind its kind (4: a witness's)
    name, _, raw = text.strip().split("+", 2)
    public = bytes([kind]) + b64(raw)[1:]
    return (name, sha(name.encode() + b"\n" + public)[:4]), public

def ed25519(public, message, signature):
    command = "openssl pkeyutl -verify -pubin -keyform DER -inkey key -rawin -in text -sigfile sig"
    der = bytes.fromhex("302a300506032b6570032100") + public  # RFC 8410
    with tempfile.TemporaryDirectory() as room:
        for n, data in ("key", der), ("text", message), ("sig", signature): pathlib.Path(room, n).write_bytes(data)
        answer = subprocess.run(command.split(), cwd=room, capture_output=True)
    check(b"Signature Verif" in answer.stdout, "this openssl cannot check Ed25519: %r" % answer.stderr, 2)
    return answer.returncode == 0

def note(data, keys):  # the lines of a signed note and which of the keys signed it; other signatures count for nothing
    text, _, signatures = data.partition(b"\n\n")
    by, text = [], text + b"\n"
    for dash, name, raw in (line.split(" ") for line in signatures.decode().removesuffix("\n").split("\n")):
        who, signature, message = (name, b64(raw)[:4]), b64(raw)[4:], text
        if who in keys and keys[who][0] == 4:  # C2SP tlog-cosignature: the time comes first
            message = b"cosignature/v1\ntime %d\n" % int.from_bytes(signature[:8], "big") + text
            signature = signature[8:]
        check(dash == "—" and (who not in keys or ed25519(keys[who][1:], message, signature)), "forged: by " + name)
        if who in keys: by.append(who)
    return text.decode().split("\n")[:-1], by

def statement(data, keys, kind, *fields):  # its content, who signed it, and the entry of the host's log for it
    (head, line), by = note(data, keys)
    value = json.loads(line)
    check((head, value["v"]) == ("custody %s v1" % kind, 1), "no statement of the kind " + kind)
    words = [kind] + [str(value[f]) for f in fields] + [sha(data).hex()]
    return value, by[0] if by else ("", ""), ("custody leaf v1\n" + " ".join(words) + "\n").encode()

def rotate(r, by, keys, heirs):  # what a known key signed makes the next one known
    (old, _), (new, heir) = key(r["old"]), key(r["new"])
    check(heirs.setdefault(old, new) == new and (by == old or old not in keys), "rotation forged or forked")
    if by == old: keys[new] = heir

def checkpoint(data, host, keys, witnesses):
    (origin, size, top, *_), by = note(data, {**keys, **witnesses})
    check(origin == host and any(w[0] == host and w in keys for w in by), "checkpoint forged or of another log")
    return int(size), b64(top), len({w for w in by if w in witnesses})

def cosigned_at(data, witnesses, quorum):  # when so many had cosigned, or all that did; signatures were checked before
    lines = [line.split(" ") for line in data.decode().partition("\n\n")[2].splitlines()]
    times = sorted(int.from_bytes(b64(raw)[4:12], "big") for _, name, raw in lines if (name, b64(raw)[:4]) in witnesses)
    return times[min(max(quorum, 1), len(times)) - 1] if times else None

def seconds(text):  # of an instant, RFC 3339 in UTC, without the fraction
    check(re.fullmatch("[-0-9]{10}T[:0-9]{8}([.][0-9]+)?Z", text), "no time in UTC: " + text)
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))

SKEW = 300  # seconds that clocks may be apart

def erasable(e, seq, by, host, run):
    check((by[0], e["run"], e["seq"]) == (host, run, seq), "erasure forged, or of another record")
    check(e["kind"] not in ("run", "step", "policy", "gap", "vm"), "a record was erased that has to stay")

def record(p, keys, witnesses, quorum, since, within):  # the proof of one record
    parts = "type v run seq state record salt leaf leaf_rule erasure segment manifest checkpoint stamp rotations host_key"
    check(p.keys() <= {*parts.split()} and (p["type"], p["v"]) == ("custody record proof", 1), "no proof of a record")
    check(p["leaf_rule"] == "SHA-256(0x00 || salt || record)" and p["state"] in ("open", "sealed", "logged"), "no such rule")
    run, seq, leaf, heirs, entries = p["run"], p["seq"], bytes.fromhex(p["leaf"]), {}, []
    def signed(part, *about):
        value, by, entry = statement(part["note"].encode(), keys, *about)
        entries.append((part.get("log"), entry))
        return value, by
    def included(place, n, leaf, top):
        path = [bytes.fromhex(h) for h in place["path"]]
        return 0 <= place["index"] < n and climb(place["index"] + 1, n, path, leaf=leaf)[1] == top and not path
    for part in p.get("rotations", []): rotate(*signed(part, "rotation"), keys, heirs)
    if "erasure" not in p:
        salt, data = b64(p["salt"]), b64(p["record"])
        check(len(salt) == 16 and sha(b"\0" + salt + data) == leaf, "record altered: it does not give the leaf")
        r = json.loads(data)
        check((r["v"], r["run"], r["seq"]) == (1, run, seq), "the record is another")
    check(p["state"] != "open", "the record is written, nothing is signed yet", 2)
    m, by = signed(p["manifest"], "manifest", "run", "segment")
    check(by[0], "the manifest is not signed by a key which is trusted here", 2)
    check("host_key" not in p or key(p["host_key"]) in keys.items(), "host key of another")
    check(m["run"] == run and m["count"] and m["first"] <= seq <= m["last"], "the manifest is over other records")
    at = p["segment"]["index"]
    check(included(p["segment"], m["count"], leaf, bytes.fromhex(m["root"])), "record altered: not in the signed segment")
    check(at <= seq - m["first"] and m["count"] - at <= m["last"] - seq + 1, "record out of its place")
    if "erasure" in p:
        e, signer = signed(p["erasure"], "erasure", "run", "seq")
        erasable(e, seq, signer, by[0], run)
        check(e["leaf"] == p["leaf"], "erasure of another record")
    check(p["state"] == "logged", "the record is signed, and not under a checkpoint yet", 2)
    size, top, cosigned = checkpoint(p["checkpoint"].encode(), by[0], keys, witnesses)
    check(cosigned >= quorum, "too few witnesses: %d" % cosigned)
    check(not since or checkpoint(since, by[0], keys, witnesses)[:2] == (size, top), "no proof that the log went on")
    for place, entry in entries: check(place and included(place, size, sha(b"\0" + entry), top), "not in the log")
    gone = ", erased" if "erasure" in p else ""
    print(f"HOLDS: run {run}, seq {seq}{gone}, log of {size} entries, {cosigned} witnesses")

def main(file="", *options):
    given = {"--key": [], "--witness": [], "--quorum": ["0"], "--since": [], "--within": ["86400"]}
    check(len(options) % 2 == 0 and {*options[::2]} <= {*given}, __doc__, 2)
    for option, value in zip(options[::2], options[1::2]): given[option].append(value)
    read = lambda value: (open(value).read() if os.path.exists(value) else value).strip()
    hosts, others = [read(k) for k in given["--key"]], [read(k) for k in given["--witness"]]
    check(all(re.fullmatch("[^ +]+[+][0-9a-f]{8}[+][A-Za-z0-9+/]{44}", k) for k in hosts + others), "no key", 2)
    check(given["--quorum"][-1].isdigit(), "the quorum is no number", 2)
    check(re.fullmatch("[1-9][0-9]{0,9}", given["--within"][-1]), "--within is no number of seconds", 2)
    keys, witnesses = dict(key(k) for k in hosts), dict(key(k, 4) for k in others)
    since = [pathlib.Path(name).read_bytes() for name in given["--since"][-1:]]
    what, data = bundle, pathlib.Path(file).read_bytes()
    if data.lstrip()[:1] == b"{": what, data = record, json.loads(data)
    what(data, keys, witnesses, int(given["--quorum"][-1]), since[0] if since else b"", int(given["--within"][-1]))

def header(name, size):  # of a file in a tar archive: there is one form only
    parts = name.ljust(100, b"\0"), b"0000644\0" + 2 * b"0000000\0", b"%011o\0" % size + b"0" * 11 + b"\0"
    rest = b"0".ljust(101, b"\0") + b"ustar\x0000".ljust(72, b"\0") + 2 * b"0000000\0"
    rest = rest.ljust(512 - 156, b"\0")
    return b"".join(parts) + b"%06o\0 " % (sum(b"".join(parts) + b" " * 8 + rest)) + rest

def unpack(data):  # the files of a bundle, and where the header of the last one begins
    files, at, last, start = {}, 0, "", 0
    while data[at:at + 512].strip(b"\0"):
        name, size = data[at:at + 100].rstrip(b"\0"), data[at + 124:at + 135]
        check(re.fullmatch(b"[0-7]{11}", size) and data[at:at + 512] == header(name, int(size, 8)), "no bundle: a header at byte %d" % at)
        size, start, before, last = int(size, 8), at, last, name.decode()
        check(last > before and len(data) >= at + 512 + size, "no bundle: cut, or its files are not in order")
        files[last] = data[at + 512:at + 512 + size]
        at += 512 + size + -size % 512
        check(not data[at - (-size % 512):at].strip(b"\0"), "no bundle: padding behind " + last)
    check(data[at:] == bytes(1024) and last == "trailer", "no bundle: it does not end as bundles do")
    return files, start

def bundle(data, keys, witnesses, quorum, kept, within):
    entries, heirs, (files, end), whole, places = {}, {}, unpack(data), data, {}
    check(all(name in files for name in ("README.txt", "host.pub")), "no bundle: README.txt and host.pub are missing")
    said, total = files.pop("trailer"), len(files)
    def statements(kind, *fields):  # number, content, signer and digest of each
        for name in sorted(n for n in files if re.fullmatch("[0-9]{20}[.]" + kind, n)):
            value, by, entry = statement(files[name], keys, kind, *fields)
            entries[name.removesuffix(".manifest") + ".tlog-proof"] = entry
            yield int(name[:20]), value, by, sha(files.pop(name)).hex()
    for _, r, by, _ in statements("rotation"): rotate(r, by, keys, heirs)
    manifests = list(statements("manifest", "run", "segment"))
    check(any(by[0] for _, _, by, _ in manifests), "no manifest is signed by a key which is trusted here", 2)
    run, host, prev, due = manifests[0][1]["run"], manifests[0][2][0], "", 1
    check(key(files.pop("host.pub").decode()) in keys.items(), "host key of another")
    erased, gone, holes, gaps, hidden, masked, copies, blind = {}, 0, [], [], 0, hashlib.sha256(), [], False
    for seq, e, by, _ in statements("erasure", "run", "seq"):
        erasable(e, seq, by, host, run)
        erased[e["leaf"]] = e
    for i, (first, m, by, digest) in enumerate(manifests):
        chain = by[0], m["run"], m["segment"], m["prev"], m["first"]
        check(host and chain == (host, run, i, prev, first), "manifest forged, missing or out of chain")
        check(bool(m["closing"]) == (i == len(manifests) - 1), "tail cut, or a manifest behind the end")
        data, sums = (files.pop("%020d.%s" % (first, s)) if m["count"] else b"" for s in ("seg", "leaves"))
        leaves, at, prev = [sums[n:n + 32] for n in range(0, len(sums), 32)], 0, digest
        check((len(leaves), len(data), root(leaves).hex()) == (m["count"], m["bytes"], m["root"]), "leaves altered")
        for leaf in leaves:
            magic, size = struct.unpack_from("<4sI", data, at)
            body, e = data[at + 12:at + 29 + size], erased.pop(leaf.hex(), None)
            if magic == b"CWF1":
                check(body[:1] == b"\0" and sha(body) == leaf, "record altered, missing, inserted or out of order")
                row = json.loads(body[17:])
            else:  # all that is left: what the statement says; or it is withheld by whoever made the bundle
                check(magic == b"CWE1" and e or magic == b"CWH1", "record altered, or erased without a statement")
                told = {"v": 1, "run": run, "seq": struct.unpack_from("<Q", body, 32)[0], "kind": ""}
                row = e if magic == b"CWE1" else told
                rest = leaf + struct.pack("<QB", row["seq"], len(run)) + run.encode()
                check(body == rest.ljust(size + 17, b"\0"), "erased or withheld record altered")
                gone += magic == b"CWE1"
                if magic == b"CWH1":
                    hidden += 1
                    masked.update(struct.pack("<Q", row["seq"]) + leaf)
            seq, kind = row["seq"], row["kind"]
            check((row["v"], row["run"]) == (1, run), "record of another run")
            check(not e or (seq, kind or e["kind"]) == (e["seq"], e["kind"]), "erasure of another record")
            check(seq >= due and (at or seq == first), "records out of order")
            if seq > due: holes.append((due, seq - 1))
            at, due = at + 29 + size, seq + 1
            if kind == "copy" and "copy" in row: copies.append(row["copy"])
            elif kind in ("copy", ""): blind = True  # erased or withheld: a list may be short
            if kind == "gap" and row["observer"] == "host": gaps.append(row["gap"])
        check((at, due) == (len(data), m["last"] + 1) and (leaves or first == due), "appended, or first or last wrong")
    if not blind and not holes: copied(copies)
    spans = [(g.get("first", 0), g.get("last", 0)) for g in gaps if g["stage"] == "wal"]
    declared = [any(f <= a and b <= l for f, l in spans) for a, b in holes]
    check(all(declared) and not erased, "seqs are missing that no gap declares, or a record that was erased")
    count, selected = sum(m["count"] for _, m, _, _ in manifests), files.pop("selection", None)
    check(selected or not hidden, "records are withheld, and no statement says so")
    if selected:
        v, by, _ = statement(selected, keys, "selection")
        about = by[0], v["run"], v["head"], v["records"], v["withheld"], v["digest"]
        check(about == (host, run, prev, count, hidden, masked.hexdigest()), "selection forged, or of other records")
    if "attachments" in files:
        v, by, _ = statement(files.pop("attachments"), keys, "attachments")
        check(by[0] == host and {"run": run, "head": prev} in v["about"], "attachments forged, or about another run")
        for f in v["files"]: check(sha(files.pop(f["name"], b"")).hex() == f["sha256"], f["name"] + " is not what was attached")
    def proof(start, name):  # what its start says, and its path; every proof ends with the checkpoint
        found = re.fullmatch(start + b"\n((?:.+\n)*)\n" + re.escape(signed), files.pop(name, b""))
        check(found, name + ": no such proof under this checkpoint")
        return int(found[1]), [b64(h) for h in found[2].split()]
    t, by, _ = statement(said, keys, "trailer")
    about = t["run"], t["head"], t["files"], t["bytes"], t["sha256"]
    check(about == (run, prev, total, end, sha(whole[:end]).hex()), "the bundle is not what its trailer signs")
    check(by[0], "the trailer is not signed by a key which is trusted here", 2)
    signed, since = files.pop("checkpoint"), files.pop("since", None)
    size, top, cosigned = checkpoint(signed, host, keys, witnesses)
    check(cosigned >= quorum, "too few witnesses: %d" % cosigned)
    if kept:
        n, before, _ = checkpoint(kept, host, keys, witnesses)
        check(n < size or (n, before) == (size, top), "log rolled back or forked")
        if 0 < n < size:
            m, path = proof(b"old ([0-9]+)", "consistency")
            check(m == n and since in (kept, None), "the bundle's earlier checkpoint is another")
            check(climb(n, size, path, old=before) == [before, top] and not path, "log forked")
    files.pop("consistency", None)
    for name, entry in entries.items():
        extra = re.escape(base64.b64encode(entry))
        i, path = proof(b"c2sp.org/tlog-proof@v1\nextra %s\nindex ([0-9]+)" % extra, name)
        found = i < size and climb(i + 1, size, path, leaf=sha(b"\0" + entry))[1] == top
        check(found and not path, name + ": not in the log")
        places[name] = i
    at = cosigned_at(kept, witnesses, quorum) if kept else None
    shown = [(size, cosigned_at(signed, witnesses, quorum))]
    for first, _, _, _ in manifests:  # checkpoints from before, by which the manifest was in the log
        name = "%020d.witnessed" % first
        if name not in files: continue
        head, _, old = files.pop(name).partition(b"\n\n")
        top_line, *hashes = head.split(b"\n")
        (m, before, count), path = checkpoint(old, host, keys, witnesses), [b64(h) for h in hashes]
        files.pop(name + ".tsr", None)
        check(top_line == b"custody witnessed v1" and places["%020d.tlog-proof" % first] < m <= size, name + ": does not cover the manifest")
        went_on = before == top if m == size else climb(m, size, path, old=before) == [before, top]
        check(went_on and not path, name + ": log forked")
        if count >= quorum: shown.append((m, cosigned_at(old, witnesses, quorum)))
    for first, m, _, _ in manifests:  # the bundle's own checkpoint counts too
        times = [t for n, t in shown if t and n > places["%020d.tlog-proof" % first]]
        check(not times or seconds(m["sealed_at"]) >= min(times) - within, "witnesses saw a manifest long after it says that it was sealed")
    for first, m, _, _ in manifests:
        young = at and places["%020d.tlog-proof" % first] >= n
        check(not young or seconds(m["sealed_at"]) >= at - SKEW, "an entry of the log is younger than it says")
    check(files.keys() <= {"README.txt", "checkpoint.tsr"}, "files that belong to nothing: " + ", ".join(files))
    shown = f", {count - hidden - gone} of {count} records shown, the others withheld" if selected else ""
    print(f"HOLDS: run {run}, {count} records{shown}, {gone} erased, head {prev}, log of {size} entries, {cosigned} witnesses")

def run():
    try: main(*sys.argv[1:])
    except Exception as e: check(False, "cannot be read: %r" % e, 2 if isinstance(e, OSError) else 1)
if __name__ == "__main__": run()
