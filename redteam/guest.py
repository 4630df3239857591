# Carries out the probes of tasks.json inside the sandbox, several at a time, and
# prints the result of each as one JSON object a line. A result is a claim: the
# suite believes it only where it agrees with what was seen outside.
import base64, concurrent.futures, glob, json, os, re, socket, ssl, subprocess, sys, threading, time, urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6, 0: socket.AF_UNSPEC}
LIMIT = 256 << 10
said = threading.Lock()


def say(**what):
    with said:
        print(json.dumps(what), flush=True)


def cloak(b):
    """What a probe heard, so written that nothing on the way takes values out of it."""
    return base64.b64encode(bytes(c ^ 0xA5 for c in b)).decode()


def wrapped(b, n):
    return b"".join(b"%x\r\n%s\r\n" % (len(b[i : i + n]), b[i : i + n]) for i in range(0, len(b), n)) + b"0\r\n\r\n"


ENCODINGS = {
    "raw": lambda v: v,
    "length": lambda v: b"%d" % len(v),
    "hex": lambda v: v.hex().encode(),
    "hexup": lambda v: v.hex().upper().encode(),
    "base64": base64.b64encode,
    "base64at1": lambda v: base64.b64encode(b"x" + v + b"yz"),
    "base64at2": lambda v: base64.b64encode(b"xy" + v + b"z"),
    "base64url": base64.urlsafe_b64encode,
    "base32": base64.b32encode,
    "url": lambda v: urllib.parse.quote_from_bytes(v, safe="").encode(),
    "urlall": lambda v: b"".join(b"%%%02x" % c for c in v),
    "json": lambda v: json.dumps(v.decode()).encode(),
    "jsonall": lambda v: b"".join(b"\\u%04x" % c for c in v),
    "utf16le": lambda v: v.decode().encode("utf-16-le"),
    "utf16be": lambda v: v.decode().encode("utf-16-be"),
    "labels32": lambda v: labels(base64.b32encode(v).rstrip(b"=").lower()),
    "labels16": lambda v: labels(v.hex().encode()),
    "user": lambda v: base64.b64encode(b"x:" + v),
    "chunks": lambda v: wrapped(v, 5),
    "chunks64": lambda v: wrapped(base64.b64encode(v), 3),
}


def labels(b):
    return b".".join(b[i : i + 50] for i in range(0, len(b), 50))


def kept(name):
    """A value that the step has, or that a step before it left here."""
    if name.startswith("word:"):
        return name[5:].encode()
    if name in os.environ:  # file:NAME is not
        return os.environ[name].encode()
    with open("/var/tmp/kept-" + name.removeprefix("file:"), "rb") as f:
        return f.read()


def fill(b, filled):
    """Puts values in the place of {{NAME|ENCODING|ENCODING}}, the inner encoding first; [A:B] takes a part."""

    def put(m):
        name, *codes = m[1].decode().split("|")
        v = kept(name)
        filled.add(v)
        for code in codes:
            code, _, part = code.partition("[")
            v = ENCODINGS[code](v)
            if part:
                a, z = part.rstrip("]").split(":")
                v = v[int(a or 0) : int(z) if z else None]
        filled.add(v)
        return v

    return re.sub(rb"\{\{([^{}]+)\}\}", put, b)


def filled(t, out):
    """Returns the task with all its values in it, and reports them."""
    values = set()
    put = lambda s: fill(s.encode(), values).decode("latin-1")
    t = dict(t)
    for key in ("name", "path"):
        if t.get(key):
            t[key] = put(t[key])
    if t.get("tls"):
        t["tls"] = {**t["tls"], "sni": put(t["tls"]["sni"])}
    for key in ("argv", "names"):
        if t.get(key):
            t[key] = [put(a) for a in t[key]]
    if t.get("send"):
        t["send"] = [{**p, "data": base64.b64encode(fill(base64.b64decode(p["data"]), values)).decode()} for p in t["send"]]
    out["filled"] = [cloak(v) for v in values if len(v) >= 16]
    return t


def text(addr):
    return "[%s]:%d" % addr[:2] if ":" in addr[0] else "%s:%d" % addr[:2]


class Refused(Exception):
    """What failed, and where: at the resolver, in this kernel, on the way, in TLS."""

    def __init__(self, stage, error):
        super().__init__(str(error) or type(error).__name__)
        self.stage = stage


def at(stage, f, *args, **kw):
    try:
        return f(*args, **kw)
    except (OSError, ValueError) as e:
        raise Refused(stage, e)


def resolve(t, out):
    found = at("name", socket.getaddrinfo, t["host"], t.get("port", 0), FAMILY[t.get("family", 0)], socket.SOCK_STREAM)
    out["addrs"] = sorted(set(out.get("addrs", [])) | {f[4][0] for f in found})
    return [f[4] for f in found]


def make(t):
    proto = t.get("proto", "tcp")
    kind = socket.SOCK_STREAM if proto == "tcp" else socket.SOCK_DGRAM
    number = 136 if proto == "udplite" else 0
    family = FAMILY[t["family"]]
    return at("socket", socket.socket, family, kind, number)


def connect(t, out):
    """Returns a connected socket and says between whom."""
    t = dict(t)
    if t.get("name"):
        t["host"] = t["name"]
        to = resolve(t, out)[0]
        t["family"] = 6 if ":" in to[0] else 4
    else:
        scope = 0
        if t.get("interface"):
            scope = at("socket", socket.if_nametoindex, t["interface"])
        to = (t["host"], t["port"]) if t["family"] == 4 else (t["host"], t["port"], 0, scope)
    s = make(t)
    s.settimeout(t.get("timeout", 3))
    if t.get("broadcast"):
        at("socket", s.setsockopt, socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    out["peer"] = text(to)
    try:
        at("connect", s.connect, to)
    finally:
        try:
            out["local"] = text(s.getsockname())
        except OSError:
            pass
    return s


def converse(t, out):
    s = connect(t, out)
    stage = "answer"
    if t.get("tls"):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        if t["tls"].get("alpn"):
            c.set_alpn_protocols(t["tls"]["alpn"])
        s.settimeout(t.get("timeout", 10))
        s = at("tls", c.wrap_socket, s, server_hostname=t["tls"].get("sni") or None)
        out["alpn"] = s.selected_alpn_protocol()
    for piece in t.get("send", []):
        at(stage, s.sendall, base64.b64decode(piece["data"]))
        time.sleep(piece.get("wait", 0) / 1000)
    answer = b""
    end = time.time() + t.get("timeout", 3)
    try:
        while len(answer) < LIMIT and time.time() < end:
            b = s.recv(65536)
            if not b:
                break
            answer += b
            if t.get("proto", "tcp") != "tcp" or t.get("enough") and t["enough"].encode() in answer:
                break
    except (OSError, ValueError) as e:
        if not answer:
            raise Refused(stage, e)
    finally:
        out["answer"] = cloak(answer)
        s.close()
    if not answer:
        raise Refused(stage, ConnectionError("closed without an answer"))


def turns(t):
    for turn in range(t.get("turns", 1)):
        if turn:
            time.sleep(t.get("pause", 0) / 1000)
        yield turn


def talk(t, out):
    """Speaks with a peer: over TCP, UDP or UDP-Lite, in TLS or not, once or several times."""
    for turn in turns(t):
        converse(t, out)


def name(t, out):
    """Asks the system's resolver for a name, once or several times, and talks with each address it gave."""
    for turn in turns(t):
        for to in resolve(t, out):
            for port in t.get("ports", []):
                try:
                    converse({**t, "name": "", "host": to[0], "family": 6 if ":" in to[0] else 4, "port": port}, out)
                except Refused as e:
                    out["tried"] = out.get("tried", []) + ["%s port %d: %s" % (to[0], port, e)]
    if not out.get("answer"):
        raise Refused("answer", ConnectionError("; ".join(out.get("tried", ["no address"]))))


def flood(t, out):
    """Asks for many names."""
    for n in t["names"]:
        try:
            found = socket.getaddrinfo(n, 443, socket.AF_INET, socket.SOCK_STREAM)
            out["addrs"] = sorted(set(out.get("addrs", [])) | {f[4][0] for f in found})
        except OSError as e:
            out["tried"] = ["%s: %s" % (n, e)]


def raw(t, out):
    """Makes a socket that a program in a sandbox has no use for."""
    s = at("socket", socket.socket, t["socket"][0], t["socket"][1], t["socket"][2])
    if t.get("host"):
        at("connect", s.sendto, base64.b64decode(t["send"][0]["data"]), (t["host"], t.get("port", 0)))
        s.settimeout(2)
        out["answer"] = cloak(at("answer", s.recv, 4096))


def program(t, out):
    """Runs a program."""
    p = subprocess.run(t["argv"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=t.get("timeout", 30), cwd=HERE, env={**os.environ, **t.get("env", {})})
    out["answer"] = cloak(p.stdout[:LIMIT])
    if p.returncode:
        raise Refused("program", ValueError("exit code %d" % p.returncode))


def stay(t, out):
    """Keeps a connection open and busy until it ends, and says when it began and how it ended."""
    s = connect({**t, "timeout": 3}, out)
    if t.get("tls"):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
        s.settimeout(10)
        s = at("tls", c.wrap_socket, s, server_hostname=t["tls"]["sni"])
    s.settimeout(3)
    end, n = time.time() + t["timeout"], 0
    at("answer", s.sendall, base64.b64decode(t["send"][0]["data"]))
    while time.time() < end:
        b = at("answer", s.recv, 65536)
        if not b:
            raise Refused("answer", ConnectionError("closed after %d bytes" % n))
        if not n:
            say(id=t["id"], open=True, peer=out.get("peer"), local=out.get("local"))
        n += len(b)
        if t.get("echo"):
            time.sleep(0.02)
            at("answer", s.sendall, b)
    out["answer"] = cloak(b"still open")


def after(t, out):
    """Waits until another task has ended, then does one of its own."""
    if not ended[t["after"]].wait(t.get("timeout", 60)):
        raise Refused("script", ValueError("%s did not end" % t["after"]))
    then = dict(t["then"])
    if then.get("same"):
        then["host"] = peers[t["after"]]
    DO[then["do"]](then, out)


def keep(t, out):
    """Leaves a value behind on the disk, and in the environment of a process that stays."""
    for n in t["names"]:
        with open("/var/tmp/kept-" + n, "w") as f:
            f.write(os.environ[n])
    p = subprocess.Popen(["sh", "-c", "trap '' HUP TERM; sleep 300"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):  # the kernel reports an exec a little before the new environment can be read
        with open("/proc/%d/environ" % p.pid, "rb") as f:
            found = f.read()
        if found:
            break
        time.sleep(0.05)
    out["answer"] = cloak(found)


def rummage(t, out):
    """Reads whatever files there are of some names, as another user if need be, after the values have gone from
    its own environment: what stands in /proc/PID/environ stays, whatever a program unsets."""
    for n in t.get("names", []):
        os.environ.pop(n, None)
    uid, (r, w) = t.get("uid", 0), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(r)
            if uid:
                os.setgroups([]), os.setgid(uid), os.setuid(uid)
            with os.fdopen(w, "wb") as f:
                for path in sorted(p for pattern in t["argv"] for p in glob.glob(pattern)):
                    try:
                        with open(path, "rb") as g:
                            f.write(path.encode() + b": " + g.read(64 << 10) + b"\n")
                    except OSError as e:
                        f.write(("%s: %s\n" % (path, e)).encode())
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        b = f.read(16 << 20)
    os.waitpid(pid, 0)
    if t.get("enough"):  # only what is around it: the rest would be too much to report
        at_ = [m.start() for m in re.finditer(re.escape(t["enough"].encode()), b)]
        b = b"...".join(b[max(0, i - 64) : i + 128] for i in at_[:100]) or b"nothing"
    out["answer"] = cloak(b)


def scan(t, out):
    """Looks for a pattern in what there is of memory: the beginning of a value, of which the script knows no more."""
    want = re.compile(re.escape(t["names"][0].encode()) + rb"[+]&\"~[A-Z2-7]{20}")
    found = []
    for path in t["argv"]:
        try:
            with open(path, "rb", buffering=0) as f:
                if path == "/proc/kcore":
                    f.seek(0)
                while len(found) < 9 and (b := f.read(1 << 20)):
                    found += want.findall(b)
        except OSError as e:
            out["tried"] = out.get("tried", []) + ["%s: %s" % (path, e)]
    out["answer"] = cloak(b"; ".join(found) or b"nothing")


def write(t, out):
    """Writes to the script's own output: piece by piece, without buffering."""
    with said:
        for piece in t["send"]:
            os.write(1, base64.b64decode(piece["data"]))
            time.sleep(piece.get("wait", 0) / 1000)
        os.write(1, b"\n")


def touch(t, out):
    """Makes files with some names."""
    for n in t["names"]:
        at("script", open, os.path.join(HERE, n), "w").close()


def link(t, out):
    """Makes a link, and shows where it leads here."""
    path = os.path.join(HERE, t["path"])
    at("script", os.symlink, t["argv"][0], path)
    if os.path.isfile(path):
        with open(path, "rb") as f:
            out["answer"] = cloak(f.read())


DO = {f.__name__: f for f in (talk, name, flood, raw, program, stay, after, keep, rummage, scan, write, touch, link)}


def carry_out(t):
    out = {"id": t["id"]}
    try:
        DO[t["do"]](filled(t, out), out)
    except Refused as e:
        out["stage"], out["error"] = e.stage, str(e)
    except Exception as e:
        out["stage"], out["error"] = "script", "%s: %s" % (type(e).__name__, e)
    say(**out)
    peers[t["id"]] = out.get("peer", "").rpartition(":")[0].strip("[]")
    ended[t["id"]].set()


say(run=os.environ.get("CUSTODY_RUN", ""))
with open(os.path.join(HERE, sys.argv[1] if len(sys.argv) > 1 else "tasks.json")) as f:
    tasks = json.load(f)
ended = {t["id"]: threading.Event() for t in tasks}
peers = {}
# Programs are heavy where the processor is emulated: one after another, before all else.
for t in tasks:
    if t["do"] == "program":
        carry_out(t)
others = [t for t in tasks if t["do"] != "program"]
with concurrent.futures.ThreadPoolExecutor(max(1, min(len(others), 16))) as pool:
    for done in pool.map(carry_out, others):
        pass
say(end=True)
