# Carries out the probes of tasks.json inside the sandbox, several at a time, and
# prints what came of each as one JSON object a line. What it says is a claim: the
# suite believes it only where it agrees with what was seen outside.
import base64, concurrent.futures, json, os, socket, ssl, subprocess, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6, 0: socket.AF_UNSPEC}
LIMIT = 256 << 10
said = threading.Lock()


def say(**what):
    with said:
        print(json.dumps(what), flush=True)


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
        out["answer"] = base64.b64encode(answer).decode()
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
        out["answer"] = base64.b64encode(at("answer", s.recv, 4096)).decode()


def program(t, out):
    """Runs a program."""
    p = subprocess.run(t["argv"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=t.get("timeout", 30), cwd=HERE, env={**os.environ, **t.get("env", {})})
    out["answer"] = base64.b64encode(p.stdout[:LIMIT]).decode()
    if p.returncode:
        raise Refused("program", ValueError("exit code %d: %s" % (p.returncode, p.stdout.decode(errors="replace")[-300:])))


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
    out["answer"] = base64.b64encode(b"still open").decode()


def after(t, out):
    """Waits until another task has ended, then does one of its own."""
    if not ended[t["after"]].wait(t.get("timeout", 60)):
        raise Refused("script", ValueError("%s did not end" % t["after"]))
    then = dict(t["then"])
    if then.get("same"):
        then["host"] = peers[t["after"]]
    DO[then["do"]](then, out)


DO = {f.__name__: f for f in (talk, name, flood, raw, program, stay, after)}


def carry_out(t):
    out = {"id": t["id"]}
    try:
        DO[t["do"]](t, out)
    except Refused as e:
        out["stage"], out["error"] = e.stage, str(e)
    except Exception as e:
        out["stage"], out["error"] = "script", "%s: %s" % (type(e).__name__, e)
    say(**out)
    peers[t["id"]] = out.get("peer", "").rpartition(":")[0].strip("[]")
    ended[t["id"]].set()


say(run=os.environ.get("CUSTODY_RUN", ""))
with open(os.path.join(HERE, "tasks.json")) as f:
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
