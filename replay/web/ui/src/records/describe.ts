import { bytes, clip, command, count, decode } from "../text";
import { span } from "../time";
import type { Kind, RunRecord, Text, Verdict } from "../types";

/** A record in a line: the words may hold text of the guest's and are shown with Line or Words. */
export interface Description {
  words: string;
  verdict?: Verdict;
  /** What the line stands out as. */
  tone?: "bad" | "warn" | "finding";
}

const most = 400;
const text = (t: Text | undefined | null) => clip(decode(t), most).text;
const ms = (ns: number | undefined) => (ns ? ` after ${span(ns / 1e6)}` : "");
const short = (hash: string | undefined) => (hash ? ` ${hash.replace(/^sha256:/, "").slice(0, 12)}…` : "");
const address = (ip: string | undefined, port: number | undefined) => `${ip?.includes(":") ? `[${ip}]` : ip ?? ""}${port ? `:${port}` : ""}`;

/** Describes a record. */
export function describe(r: RunRecord): Description {
  const make = Object.hasOwn(makers, r.kind) ? makers[r.kind] : undefined;
  try {
    return make?.(r) ?? { words: r.kind };
  } catch {
    return { words: `${r.kind} (its fields are not those of the kind)` };
  }
}

const makers: Record<Kind, (r: RunRecord) => Description> = {
  run: (r) => lifecycle("run", r),
  step: (r) => lifecycle(`step ${text(r.lifecycle?.name ?? r.step)}`, r),
  exec: (r) => ({ words: `${command(r.exec!.argv.slice(0, 64).map((a) => text(a)))}${r.exec!.argv.length > 64 ? " …" : ""}  (pid ${r.exec!.pid}, in ${text(r.exec!.cwd)})` }),
  exit: (r) => {
    const e = r.exit!;
    if (e.synthetic) return { words: `pid ${e.pid}: its end was not seen`, tone: "warn" };
    const how = e.signal ? `killed by signal ${e.signal}` : `exits with ${e.code}`;
    return { words: `pid ${e.pid} ${how}${ms(e.duration_ns)}`, ...(e.code !== 0 || e.signal ? { tone: "warn" as const } : {}) };
  },
  file: (r) => {
    const f = r.file!;
    const to = f.to === undefined ? "" : ` → ${text(f.to)}`;
    const what = f.op === "write" || f.op === "read" ? `  ${bytes(f.size)}${short(f.sha256)}${f.unhashed ? ` (no hash: ${f.unhashed})` : ""}${f.secrets?.length ? `, which holds the secrets ${f.secrets.join(", ")}` : ""}` : "";
    const by = f.caller === undefined ? "" : `, by ${text(f.caller)} through the API`;
    if (f.error !== undefined) return { words: `${f.op} ${text(f.path)}${to} failed${by}: ${text(f.error)}`, tone: "warn" };
    return { words: `${f.op} ${text(f.path)}${to}${what}${by}` };
  },
  flow: (r) => {
    const f = r.flow!;
    const where = f.name ? `${text(f.name)}${f.dst_port ? `:${f.dst_port}` : ""}` : address(f.dst_ip, f.dst_port);
    const sum = f.bytes_out || f.bytes_in ? `  ${bytes(f.bytes_out ?? 0)} out, ${bytes(f.bytes_in ?? 0)} in` : "";
    const times = (f.count ?? 0) > 1 ? `  ${count(f.count)} times` : "";
    return { words: `${f.state} ${f.proto} ${where}${sum}${times}${f.reason ? `  ${f.reason}` : ""}`, ...verdict(f.verdict, f.state === "revoke") };
  },
  inbound: (r) => {
    const c = r.inbound!;
    const sum = c.op === "close" ? `  ${bytes(c.bytes_in ?? 0)} in, ${bytes(c.bytes_out ?? 0)} out` : "";
    return { words: `${c.op} connection to port ${c.port} for ${c.who}${sum}${c.reason ? `  ${c.reason}` : ""}${ms(c.duration_ns)}`, ...(c.op === "refuse" ? { tone: "warn" as const } : {}) };
  },
  dns: (r) => {
    const d = r.dns!;
    const answers = d.answers?.length ? `→ ${d.answers.slice(0, 4).join(", ")}${d.answers.length > 4 ? ", …" : ""}` : d.rcode;
    return { words: `${d.type} ${text(d.name)} ${answers}${d.reason ? `  ${d.reason}` : ""}`, ...verdict(d.verdict) };
  },
  http: (r) => {
    const h = r.http!;
    return { words: `${text(h.method)} ${text(h.host)}${text(h.path)}${h.status ? ` → ${h.status}` : ""}${h.credential ? `  with ${h.credential}` : ""}${h.reason ? `  ${h.reason}` : ""}`, ...verdict(h.verdict) };
  },
  llm: (r) => {
    const l = r.llm!;
    const tools = l.tool_calls?.length ? `  requests ${l.tool_calls.slice(0, 4).map((t) => text(t.name)).join(", ")}` : "";
    const bad = l.error || (l.status ?? 200) >= 400;
    return { words: `${l.provider} ${text(l.model)}  ${count(l.input_tokens)} tokens in, ${count(l.output_tokens)} out${tools}${l.error ? `  ${text(l.error)}` : ""}`, ...(bad ? { tone: "warn" as const } : {}) };
  },
  policy: (r) => ({ words: `policy generation ${r.policy!.generation}${short(r.policy!.digest)}  ${r.policy!.rules?.length ?? 0} rules` }),
  probe: (r) => {
    const p = r.probe!;
    const came = !p.blocked ? "got through" : "blocked";
    const bad = p.name.startsWith("control/") ? p.blocked : !p.blocked;
    return { words: `probe ${p.name}${p.family ? ` (${p.family})` : ""}: ${came}${p.recorded ? "" : ", not recorded"}  ${text(p.detail)}`, ...(bad || !p.recorded ? { tone: "bad" as const } : {}) };
  },
  output: (r) => ({ words: `${r.output!.stream}: ${text(r.output!.text).replace(/\r?\n$/, "")}` }),
  vm: (r) => {
    const v = r.vm!;
    return { words: `machine: ${v.op}${v.driver ? ` ${v.driver}` : ""}${v.reason ? `  ${v.reason}` : ""}${ms(v.duration_ns)}`, ...(v.op === "freeze" ? { tone: "warn" as const } : {}) };
  },
  copy: (r) => {
    const c = r.copy!;
    if (c.op === "list") return { words: `copied ${c.direction}: ${(c.files ?? []).slice(0, 4).map((f) => text(f.path)).join(", ")}${(c.files?.length ?? 0) > 4 ? `, … ${count(c.files!.length)} files` : ""}` };
    return { words: `copied ${c.direction}: ${text(c.dir)}  ${count(c.count ?? 0)} files, ${bytes(c.bytes ?? 0)}${short(c.root)}${c.reason ? `  ${c.reason}` : ""}`, ...(c.reason ? { tone: "warn" as const } : {}) };
  },
  secret: (r) => {
    const s = r.secret!;
    const ttl = s.ttl_ns ? `  lives ${span(s.ttl_ns / 1e6)}` : "";
    return { words: `${s.op} ${s.name || "the step's token"}${s.via ? ` as ${s.via}` : ""}${s.host ? ` for ${text(s.host)}` : ""}${ttl}${s.reason ? `  ${s.reason}` : ""}`, ...(s.op === "refuse" ? { tone: "bad" as const } : {}) };
  },
  gap: (r) => r.gap!.stage === "driver" && !r.gap!.count ? { words: `not observed: ${r.gap!.what}  ${r.gap!.cause}` } : ({ words: `gap: ${count(r.gap!.count)} events lost at ${r.gap!.stage}${r.gap!.bytes ? `, ${bytes(r.gap!.bytes)} of output` : ""}  ${r.gap!.cause}`, tone: "warn" }),
  finding: (r) => ({ words: `${r.finding!.rule}: ${r.finding!.detail}${r.finding!.action ? `  (${r.finding!.action})` : ""}`, tone: "finding" }),
  access: (r) => ({ words: `${r.access!.who || "unknown"}: ${r.access!.action} ${r.access!.route} ${text(r.access!.about)}`, ...verdict(r.access!.verdict) }),
  note: (r) => ({ words: `${r.note!.who} on ${r.note!.about}${r.note!.seq ? ` record ${r.note!.seq}` : ""}: ${text(r.note!.text)}${(r.note!.tags ?? []).map((t) => `  #${t}`).join("")}` }),
};

function lifecycle(what: string, r: RunRecord): Description {
  const l = r.lifecycle!;
  if (l.phase === "start") return { words: `${what} starts${l.argv?.length ? `: ${command(l.argv.slice(0, 64))}` : ""}${l.env?.length ? `  (env ${command(l.env.slice(0, 64))})` : ""}` };
  const code = l.exit_code === undefined ? "" : `, exit code ${l.exit_code}`;
  const bad = l.status !== "done" || (l.exit_code ?? 0) !== 0;
  return { words: `${what} ends: ${l.status ?? "status unknown"}${code}${l.reason ? ` (${l.reason})` : ""}${ms(l.duration_ns)}`, ...(bad ? { tone: "warn" as const } : {}) };
}

function verdict(v: Verdict | undefined, revoked = false): Partial<Description> {
  if (!v) return {};
  return { verdict: v, ...(v === "deny" ? { tone: "bad" as const } : revoked ? { tone: "warn" as const } : {}) };
}
