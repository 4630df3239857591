#!/usr/bin/env python3
"""Checks a bundle of custody's, with Python's standard library alone. docs/verify.md says what each step means.

    verify.py BUNDLE --key host.pub [--key ...] [--witness KEY ... --quorum N] [--since CHECKPOINT]

A key is a file or the key itself. Exit status: 0 it holds, 1 it does not, 2 it cannot be judged."""
import argparse, base64, hashlib, json, os, re, struct, sys, zipfile

P, Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # Ed25519, RFC 8032, section 5.1
D = -121665 * pow(121666, -1, P) % P
CRC = []
for n in range(256):  # CRC-32C, reflected
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    CRC.append(n)

def check(ok, finding, status=1):
    if not ok:
        print(("DOES NOT HOLD: ", "CANNOT BE JUDGED: ")[status - 1] + finding)
        sys.exit(status)

def sha(b): return hashlib.sha256(b).digest()
def b64(s): return base64.b64decode(s, validate=True)

def point(b):
    y, x = int.from_bytes(b, "little"), 0
    sign, y = y >> 255, y & 2**255 - 1
    xx = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P: x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - xx) % P or y >= P: raise ValueError("no point")
    if x & 1 != sign: x = P - x
    return x, y, 1, x * y % P

def add(a, b):
    e, f = (a[1] - a[0]) * (b[1] - b[0]), (a[1] + a[0]) * (b[1] + b[0])
    g, h = 2 * a[3] * b[3] * D, 2 * a[2] * b[2]
    e, f, g, h = f - e, h - g, h + g, f + e
    return e * f % P, g * h % P, f * g % P, e * h % P

def times(n, a):
    r = (0, 1, 1, 0)
    while n:
        if n & 1: r = add(r, a)
        a, n = add(a, a), n >> 1
    return r

def ed25519(key, msg, sig):
    if len(sig) != 64 or int.from_bytes(sig[32:], "little") >= Q: return False
    try: a = point(key)
    except ValueError: return False
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + msg).digest(), "little") % Q
    r = add(times(int.from_bytes(sig[32:], "little"), point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))), times(Q - h, a))
    z = pow(r[2], -1, P)
    return (r[1] * z % P | (r[0] * z % P & 1) << 255).to_bytes(32, "little") == sig[:32]

def key(text, kind=1):
    """name+hash+key -> (name, hash) and the 32 bytes; kind 4 is a witness's."""
    name, hashed, raw = (open(text).read() if os.path.exists(text) else text).strip().split("+", 2)
    raw = b64(raw)
    if len(raw) != 33 or raw[0] not in (1, kind) or sha(name.encode() + b"\n" + raw)[:4].hex() != hashed: raise ValueError("no key")
    return (name, sha(b"%s\n%c%s" % (name.encode(), kind, raw[1:]))[:4]), raw[1:]

def note(data, keys, what, witnesses={}, one=True):
    """The text of a signed note, and whose good signatures it has, in order."""
    text, _, sigs = data.partition(b"\n\n")
    text, good = text + b"\n", []
    lines = sigs.decode("utf-8", "replace").split("\n")
    check(lines.pop() == "" and lines and (len(lines) == 1 or not one), what + " forged")
    for line in lines:
        m = re.fullmatch("— ([^ +]+) ([A-Za-z0-9+/]+=*)", line)
        check(m, what + " forged")
        try: raw = b64(m[2])
        except ValueError: check(False, what + " forged")
        check(base64.b64encode(raw).decode() == m[2] and len(raw) > 4, what + " forged")
        who, sig = (m[1], raw[:4]), raw[4:]
        if who in keys: check(ed25519(keys[who], text, sig), what + " forged")
        elif who in witnesses:
            stamp = b"cosignature/v1\ntime %d\n" % int.from_bytes(sig[:8], "big")
            check(ed25519(witnesses[who], stamp + text, sig[8:]), "cosignature forged")
        else: continue
        if who not in good: good.append(who)
    return text, good

def statement(data, kind, keys, what):
    text, by = note(data, keys, what)
    try:
        head, line, end = text.decode().split("\n")
        value = json.loads(line)
    except ValueError: check(False, what + " forged")
    check(head == "custody %s v1" % kind and end == "" and value["v"] == 1, what + " forged")
    return value, by[0] if by else None

def node(a, b): return sha(b"\x01" + a + b)

def root(leaves):
    if not leaves: return sha(b"")
    while len(leaves) > 1:
        leaves = [node(*leaves[i:i + 2]) if i + 1 < len(leaves) else leaves[i] for i in range(0, len(leaves), 2)]
    return leaves[0]

def climb(path, i, last, old, new):
    """RFC 9162, 2.1.3.2 and 2.1.4.2: the roots of the old tree and of the new one."""
    for p in path:
        if last == 0: return None
        if i & 1 or i == last:
            old, new = node(p, old), node(p, new)
            while not i & 1 and i: i, last = i >> 1, last >> 1
        else: new = node(new, p)
        i, last = i >> 1, last >> 1
    return (old, new) if last == 0 else None

def checkpoint(data, keys, host, what, witnesses={}):
    text, by = note(data, keys, what, witnesses, one=False)
    origin, size, top = text.decode().split("\n")[:3]
    check(origin == host, what + " of another log")
    check(any(w in keys for w in by), what + " forged")
    return int(size), b64(top), [w for w in by if w in witnesses and w not in keys]

def frames(data, leaves, run, file):
    """Yields seq, leaf and record; the record is None if it was erased."""
    for want in leaves:
        check(len(data) >= 29, file + ": record missing")
        size, crc, = 29 + struct.unpack("<I", data[4:8])[0], 0xFFFFFFFF
        body = data[12:size]
        check(len(data) >= size and data[:4] in (b"CWF1", b"CWE1"), file + ": record altered or cut off")
        for c in data[4:8] + body: crc = crc >> 8 ^ CRC[(crc ^ c) & 255]
        check(struct.pack("<I", crc ^ 0xFFFFFFFF) == data[8:12], file + ": record altered")
        if data[:4] == b"CWF1":
            check(body[0] == 0 and sha(body) == want, file + ": record altered, missing, inserted or out of order")
            try: record = json.loads(body[17:])
            except ValueError: check(False, file + ": record cannot be decoded")
            check((record["v"], record["run"]) == (1, run), file + ": record of another run")
            yield record["seq"], want, record
        else:
            end = 41 + body[40]
            check(body[:32] == want and body[41:end] == run.encode() and not any(body[end:]), file + ": erased record altered")
            yield struct.unpack("<Q", body[32:40])[0], want, None
        data = data[size:]
    check(not data, file + ": record appended")

def main():
    a = argparse.ArgumentParser()
    a.add_argument("bundle")
    for name in ("--key", "--witness"): a.add_argument(name, action="append", default=[])
    a.add_argument("--quorum", type=int, default=0)
    a.add_argument("--since")
    a = a.parse_args()
    keys, named, witnesses = dict(map(key, a.key)), {}, dict(key(w, 4) for w in a.witness)
    try: z = zipfile.ZipFile(a.bundle)
    except zipfile.BadZipFile: check(False, "not a bundle")
    check(len(z.namelist()) == len(set(z.namelist())), "a file is there twice")
    files, used = {}, {"README.txt", "checkpoint.tsr"}  # the stamp is for openssl ts
    for name in z.namelist():
        try: files[name] = z.read(name)
        except zipfile.BadZipFile: check(False, name + " cannot be read", 2)
    def take(name):
        used.add(name)
        check(name in files, name + " is missing")
        return files[name]
    def every(suffix): return sorted(n for n in files if re.fullmatch(r"\d{20}" + re.escape(suffix), n))

    # Keys: a rotation that a known key signed makes the next one known.
    rotations, chained = [take(n) for n in every(".rotation")], {}
    for _ in rotations:
        for data in rotations:
            r, by = statement(data, "rotation", keys, "rotation")
            (old, raw), new = key(r["old"]), key(r["new"])
            if by is None:
                check(note(data, {old: raw}, "rotation")[1], "rotation forged")
                named[old] = raw
                continue
            check(by == old and chained.setdefault(old, r["new"]) == r["new"], "rotation forged or forked")
            keys[new[0]] = new[1]

    # The chain of manifests.
    manifests, prev = [], ""
    for name in every(".manifest"):
        m, by = statement(take(name), "manifest", keys, "manifest")
        check(not manifests or not manifests[-1]["closing"], "a manifest behind the end")
        m["by"], m["digest"] = by, sha(files[name]).hex()
        manifests.append(m)
    check(manifests, "there is no record" if not every(".seg") else "tail cut", 1 if every(".seg") else 2)
    if not any(m["by"] for m in manifests): check(False, "the key is not trusted here", 2)
    run, host = manifests[0]["run"], (manifests[0]["by"] or [""])[0]
    for i, (m, name) in enumerate(zip(manifests, every(".manifest"))):
        check(m["by"] and m["by"][0] == host, "manifest forged")
        check((m["segment"], m["prev"], m["run"], "%020d.manifest" % m["first"]) == (i, prev, run, name), "manifest missing, out of chain or of another run")
        prev = m["digest"]
    check(manifests[-1]["closing"], "tail cut")
    try: check(key(take("host.pub").decode())[0] in keys, "host key of another")
    except ValueError: check(False, "host key of another")

    # What was erased, and each record against its leaf and root.
    erased, gone, due, holes, excuses = {}, 0, 1, [], []
    for name in every(".erasure"):
        e, by = statement(take(name), "erasure", keys, "erasure")
        check(by and by[0] == host, "erasure forged")
        check(e["run"] == run and "%020d.erasure" % e["seq"] == name, "erasure of another record")
        check(e["kind"] not in ("run", "step", "policy", "gap", "vm"), "a record was erased that has to stay")
        erased[e["seq"]] = e
    seen = set()
    for m in manifests:
        base, data, sums = "%020d" % m["first"], b"", b""
        if m["count"]: data, sums = take(base + ".seg"), take(base + ".leaves")
        leaves = [sums[i:i + 32] for i in range(0, len(sums), 32)]
        check((len(sums), len(data)) == (32 * m["count"], m["bytes"]) and root(leaves).hex() == m["root"], base + ": leaves or records altered or missing")
        check(m["first"] == due or m["count"], base + ": first is not the seq that is due")
        for i, (seq, leaf, record) in enumerate(frames(data, leaves, run, base + ".seg")):
            check(seq >= due and (i or seq == m["first"]), base + ": records out of order")
            if seq > due: holes.append((due, seq - 1))
            due = seq + 1
            if record is None or seq in erased:
                check(seq in erased and erased[seq]["leaf"] == leaf.hex(), "seq %d: erased without a statement" % seq)
                check(record is None or record["kind"] == erased[seq]["kind"], "seq %d: the statement is about another" % seq)
                gone += record is None
                seen.add(seq)
            elif record["kind"] == "gap" and record["observer"] == "host" and record["gap"]["stage"] == "wal":
                excuses.append((record["gap"].get("first", 0), record["gap"].get("last", 0)))
        check(m["last"] == due - 1, base + ": last is not the last seq")
    check(seen == set(erased), "erasure of no record")
    check(all(any(f <= first and last <= l for f, l in excuses) for first, last in holes), "seqs are missing that no gap declares")

    # The host's log: checkpoint, witnesses, what went before, and that all that is signed stands in it.
    signed = take("checkpoint")
    size, top, cosigned = checkpoint(signed, keys, host, "checkpoint", witnesses)
    check(len(cosigned) >= a.quorum, "too few witnesses: %d" % len(cosigned))
    since = [(take("since"), {**named, **keys})] if "since" in files else []
    for old, known in since + ([(open(a.since, "rb").read(), keys)] if a.since else []):
        n, before, _ = checkpoint(old, known, host, "earlier checkpoint", witnesses)
        check(n < size or (n, before) == (size, top), "log rolled back or forked")
        if 0 < n < size:
            head, _, under = take("consistency").partition(b"\n\n")
            lines = head.decode().split("\n")
            check(lines[0] == "old %d" % n and under == signed, "consistency of another checkpoint")
            path = [b64(h) for h in lines[1:]]
            if n & n - 1 == 0: path.insert(0, before)
            i, last = n - 1, size - 1
            while i & 1: i, last = i >> 1, last >> 1
            check(path and climb(path[1:], i, last, path[0], path[0]) == (before, top), "log forked")
        elif "consistency" in files: used.add("consistency")
    entries = [("%020d" % m["first"], "manifest %s %d " % (run, m["segment"]), m["digest"]) for m in manifests]
    entries += [(n, "erasure %s %d " % (run, int(n[:20])), sha(files[n]).hex()) for n in every(".erasure")]
    entries += [(n, "rotation ", sha(files[n]).hex()) for n in every(".rotation")]
    for name, what, digest in entries:
        head, _, under = take(name + ".tlog-proof").partition(b"\n\n")
        entry = ("custody leaf v1\n%s%s\n" % (what, digest)).encode()
        lines = head.decode().split("\n")
        check(lines[:2] == ["c2sp.org/tlog-proof@v1", "extra " + base64.b64encode(entry).decode()], name + ": proof of another entry")
        index, leaf = int(lines[2].removeprefix("index ")), sha(b"\0" + entry)
        check(under == signed, name + ": proof of another checkpoint")
        check(lines[2] == "index %d" % index and index < size, name + ": no proof")
        check((climb([b64(h) for h in lines[3:]], index, size - 1, leaf, leaf) or (0, 0))[1] == top, name + ": not in the log")
    check(set(files) <= used, "files that belong to nothing: " + ", ".join(sorted(set(files) - used)))
    print("HOLDS: run %s, %d records, %d of them erased, %s, head %s, log of %d entries, %d witnesses" % (
        run, sum(m["count"] for m in manifests), gone, manifests[-1]["closing"], prev, size, len(cosigned)))

def run():
    try: main()
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as e: check(False, "cannot be read: %r" % e)

if __name__ == "__main__": run()
