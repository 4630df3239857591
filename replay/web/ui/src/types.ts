// The JSON of the API: replay/answers.go, replay/state.go, audit/event.go, store/run.go
// and replay/api. Instants are RFC 3339 with nanoseconds.

import type { Kind } from "./kinds";

export { kinds, runKinds, type Kind } from "./kinds";

/** Bytes of the guest's choosing: a string where they are UTF-8. Show it with <Words>. */
export type Text = string | { base64: string };
export type Observer = "host" | "guest";
export type Verdict = "allow" | "deny";

export type Role = "viewer" | "auditor" | "operator" | "admin";
export interface Grant {
  tenant: string;
  role: Role;
}
export interface Session {
  name: string;
  via: string;
  tenant: string;
  role: Role;
  grants: Grant[];
  expires: string;
  csrf?: string;
}
export interface Health {
  store: "ok" | "away" | string;
  oidc?: boolean;
  sandboxes?: boolean;
  version?: string;
}

export interface Verification {
  state: "holds" | "fails" | "unsigned" | "cannot" | "unchecked" | "checking";
  name?: string;
  number?: number;
  text?: string;
  at?: string;
  report?: unknown;
}

export interface Run {
  run: string;
  tenant?: string;
  host?: string;
  project: string;
  start: string;
  end: string | null;
  status: "running" | "sealed" | "interrupted" | string;
  result?: string;
  exit_code: number | null;
  tier: string;
  mode?: string;
  template: string;
  duration_ns: number;
  events: number;
  findings: number;
  gaps: number;
  lost: number;
  last_seq: number;
}
export interface RunItem extends Run {
  class?: string;
  live?: boolean;
  verification: Verification;
  doubt?: Doubt;
}
/** The records of a run that are not what was signed: how many, and the first of them. */
export interface Doubt {
  count: number;
  records: { seq: number; verification: Mark }[];
}
export interface RunDetail extends RunItem {
  facts: Lifecycle;
  steps: StepState[];
  kinds: Partial<Record<Kind, number>>;
  policy: PolicyAt[];
  derived_findings: number;
}
export interface RunPage {
  runs: RunItem[];
  next?: string;
}

/** A record as it stands in the log. The payload stands under the kind's own name, or lifecycle. */
export interface RunRecord {
  v: number;
  run: string;
  seq: number;
  time: string;
  observer: Observer;
  kind: Kind;
  step?: string;
  guest_time?: { time: string; offset_ns: number };
  lifecycle?: Lifecycle;
  exec?: Exec;
  exit?: Exit;
  file?: FileEvent;
  flow?: Flow;
  inbound?: Inbound;
  dns?: DNS;
  http?: HTTP;
  llm?: LLM;
  policy?: PolicyEvent;
  probe?: Probe;
  output?: Output;
  vm?: VM;
  copy?: Copy;
  secret?: Secret;
  gap?: Gap;
  finding?: FindingEvent;
  access?: Access;
  note?: NoteEvent;
}
export interface RecordRow {
  seq: number;
  record?: RunRecord;
  verification?: Mark;
  /** The hash that stands in the record's place once it has been erased. */
  erased?: string;
}
export interface RecordPage {
  records: RecordRow[];
  next?: string;
  total?: number;
}
export interface RecordAnswer extends RecordRow {
  why: Why;
  findings: Finding[];
}

export interface Probe {
  name: string;
  family?: string;
  blocked: boolean;
  recorded: boolean;
  attacked?: string;
  evidence?: number;
  detail?: Text;
}
export interface Parent {
  op: "resume" | "fork";
  run: string;
  seq: number;
  root: string;
  manifest: string;
}

/** The runs that continue each other's state, each behind its parent. */
export interface Lineage {
  runs: { run: string; parent?: string; op?: string; start?: string; here: boolean }[];
  more: boolean;
}

export interface Lifecycle {
  phase: "start" | "end";
  name?: string;
  argv?: Text[];
  env?: Text[];
  tenant?: string;
  project?: string;
  template?: string;
  template_digest?: string;
  project_digest?: string;
  project_version?: number;
  project_author?: string;
  narrowing_digest?: string;
  parent?: Parent;
  policy_digest?: string;
  ruleset_digest?: string;
  tier?: string;
  tier_note?: string;
  mode?: string;
  version?: string;
  host?: string;
  steps?: string[];
  secrets?: string[];
  exit_code?: number;
  status?: string;
  reason?: string;
  duration_ns?: number;
}
export interface Copy {
  direction: "in" | "out" | string;
  op: "list" | "end" | string;
  dir?: Text;
  first?: number;
  salt?: string;
  files?: CopiedFile[];
  count?: number;
  bytes?: number;
  root?: string;
  reason?: string;
}
export interface CopiedFile {
  path: Text;
  as?: Text;
  mode: string;
  size: number;
  sha256?: string;
  link?: Text;
}
export interface Exec {
  proc: string;
  parent?: string;
  pid: number;
  ppid: number;
  exe: Text;
  argv: Text[];
  cwd: Text;
  uid: number;
  truncated?: boolean;
  argv_bytes?: number;
  argv_sha256?: string;
  llm?: string;
  tool_call?: Text;
}
export interface Exit {
  proc: string;
  pid: number;
  code: number;
  signal?: number;
  duration_ns: number;
  synthetic?: boolean;
}
export interface FileEvent {
  proc?: string;
  pid?: number;
  parent?: string;
  op: "create" | "write" | "read" | "rename" | "delete" | "chroot" | "stat" | "list" | "pack" | "unpack" | "watch";
  path: Text;
  to?: Text;
  source?: Text;
  device?: string;
  inode?: string;
  size: number;
  sha256?: string;
  unhashed?: string;
  secrets?: string[];
  caller?: Text;
  offset?: number;
  error?: Text;
}
export interface Flow {
  id?: string;
  proc?: string;
  pid?: number;
  parent?: string;
  state: "attempt" | "open" | "close" | "deny" | "revoke";
  proto: string;
  src_ip?: string;
  src_port?: number;
  dst_ip?: string;
  dst_port?: number;
  errno?: number;
  name?: Text;
  verdict?: Verdict;
  rule?: string;
  reason?: string;
  dns_seq?: number;
  generation?: number;
  peer?: string;
  sni?: Text;
  bytes_out?: number;
  bytes_in?: number;
  packets_out?: number;
  packets_in?: number;
  duration_ns?: number;
  count?: number;
}
export interface Inbound {
  id: string;
  op: "open" | "close" | "refuse" | string;
  port: number;
  who: string;
  via: string;
  bytes_in?: number;
  bytes_out?: number;
  reason?: string;
  duration_ns?: number;
}
export interface DNS {
  name: Text;
  type: string;
  proto?: string;
  rcode: string;
  answers?: string[];
  chain?: Text[];
  ttl?: number;
  verdict: Verdict;
  rule: string;
  reason?: string;
  synthetic?: boolean;
  dropped?: string[];
  upstream?: string;
  cached?: boolean;
  latency_ns?: number;
  generation?: number;
}
export interface HTTP {
  flow?: string;
  proto?: string;
  method: Text;
  host: Text;
  path: Text;
  status?: number;
  bytes_out?: number;
  bytes_in?: number;
  verdict: Verdict;
  rule: string;
  reason?: string;
  generation?: number;
  duration_ns?: number;
  credential?: string;
  redacted?: number;
  llm?: string;
}
export interface LLM {
  id: string;
  flow?: string;
  provider: string;
  api: string;
  host: Text;
  model?: Text;
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  reasoning_tokens?: number;
  tools?: Text[];
  tool_calls?: ToolCall[];
  stop_reason?: Text;
  status?: number;
  error?: Text;
  stream?: boolean;
  retry?: number;
  request_sha256?: string;
  incomplete?: string;
  duration_ns: number;
  first_token_ns?: number;
  spent?: number;
  budget?: number;
}
export interface ToolCall {
  id?: Text;
  name: Text;
  sha256: string;
  arguments?: Text;
  truncated?: boolean;
}
export interface PolicyEvent {
  generation: number;
  digest: string;
  previous?: string;
  rules?: Text[];
}
export interface Output {
  stream: string;
  offset: number;
  text: Text;
}
export interface VM {
  op: string;
  driver?: string;
  tier?: string;
  reason?: string;
  duration_ns?: number;
}
export interface Secret {
  name?: string;
  op: "mint" | "deliver" | "use" | "renew" | "revoke" | "expire" | "refuse";
  broker?: string;
  via?: string;
  tag?: string;
  accessor_sha256?: string;
  ttl_ns?: number;
  expires?: string;
  leases?: number;
  flow?: string;
  host?: Text;
  reason?: string;
}
export interface Gap {
  stage: string;
  what?: string;
  first?: number;
  last?: number;
  count: number;
  bytes?: number;
  cause: string;
}
export interface FindingEvent {
  rule: string;
  detail: string;
  secret?: string;
  proc?: string;
  evidence?: number;
  action?: string;
}
export interface Access {
  who?: string;
  via?: string;
  role?: string;
  tenant?: string;
  action: string;
  route: string;
  about?: Text;
  query?: Text;
  remote?: string;
  verdict: Verdict;
  reason?: string;
  status?: number;
  count?: number;
  project?: string;
  project_version?: number;
  project_digest?: string;
}

/** A note on a run or on a record of it; seq and leaf are of that record. */
export interface NoteEvent {
  who: string;
  via: string;
  role?: string;
  tenant?: string;
  about: string;
  seq?: number;
  leaf?: string;
  text?: Text;
  tags?: string[];
  withdraws?: string;
  remote?: string;
}

/** A note as GET notes of a run has it. */
export interface RunNote extends NoteEvent {
  id: string;
  time: string;
  withdrawn?: { id: string; time: string; who: string; via: string; text?: Text };
  state: "recorded" | "stored";
  bound: "run" | "same" | "other" | "missing";
  /** Of its record, or its withdrawal's, where that is not what was signed. */
  verification?: Mark;
}

// replay/state.go

export interface State {
  run: string;
  at: string;
  phase: "not started" | "running" | "frozen" | "ended";
  events: number;
  steps: StepState[] | null;
  processes: Process[] | null;
  files: FileState[] | null;
  deleted: Text[] | null;
  egress: Egress;
  secrets: Held[] | null;
  output: OutputLine[] | null;
  gaps: Gap[] | null;
  findings: FindingEvent[] | null;
  missing: number;
  unreadable: number;
}
export interface StepState {
  name: string;
  argv: Text[] | null;
  start: string;
  end?: string;
  exit_code?: number;
  status?: string;
}
export interface Process {
  proc: string;
  pid: number;
  argv: Text[];
  exe: Text;
  cwd: Text;
  uid: number;
  step: string;
  start: string;
  children?: Process[];
}
export interface FileState {
  path: Text;
  size: number;
  sha256?: string;
  unhashed?: string;
  time: string;
  pid?: number;
}
export interface Egress {
  generation: number;
  digest?: string;
  rules?: Text[];
  flows: FlowAt[] | null;
  names: NameAt[] | null;
  denied: { questions: number; flows: number; requests: number };
}
export interface FlowAt extends Flow {
  opened: string;
  by?: string;
}
export interface NameAt {
  name: Text;
  addrs: string[];
  found?: string[];
  rule: string;
  time: string;
}
export interface Held {
  step: string;
  name: string;
  via?: string;
  broker?: string;
  accessor_sha256?: string;
  since: string;
  expires: string;
  renewals?: number;
}
export interface OutputLine {
  stream: string;
  text: Text;
}

// replay/answers.go

export interface Items<T> {
  items: T[];
}
export interface Actor {
  proc: string;
  pid?: number;
  name?: Text;
  child?: boolean;
  seq?: number;
}
export interface Proc {
  seq: number;
  exit_seq?: number;
  proc: string;
  parent?: string;
  parent_seq?: number;
  pid: number;
  ppid: number;
  argv: Text[];
  exe: Text;
  cwd: Text;
  uid: number;
  step: string;
  observer: Observer;
  start: string;
  end: string | null;
  code: number | null;
  signal?: number;
  synthetic?: boolean;
  replaced?: boolean;
  llm?: string;
  tool_call?: Text;
  files: number;
  flows: number;
}
export interface Connection {
  seq: number;
  flow?: string;
  observer: Observer;
  name: Text;
  dst_ip?: string;
  dst_port?: number;
  proto: string;
  state: "open" | "close" | "deny" | "revoke" | "attempt" | "answered" | "refused" | string;
  verdict?: Verdict;
  rule?: string;
  reason?: string;
  start: string;
  end: string | null;
  end_seq?: number;
  bytes_out: number;
  bytes_in: number;
  count?: number;
  peer?: string;
  sni?: Text;
  dns?: Question;
  requests: HTTPRequest[];
  by?: Actor;
  claim_seq?: number;
  unclaimed?: boolean;
  unseen?: boolean;
}
export interface Question {
  seq: number;
  time: string;
  type: string;
  rcode: string;
  answers: string[];
  verdict: Verdict;
  rule: string;
  reason?: string;
  latency_ns?: number;
}
export interface HTTPRequest {
  seq: number;
  start: string;
  end: string;
  method: Text;
  path: Text;
  status?: number;
  verdict: Verdict;
  rule: string;
  reason?: string;
  credential?: string;
  llm?: string;
  bytes_out: number;
  bytes_in: number;
}
export interface FileHistory {
  path: Text;
  size: number;
  sha256?: string;
  unhashed?: string;
  deleted?: boolean;
  moved_to?: Text;
  written: boolean;
  first: string;
  last: string;
  seq: number;
  by?: Actor;
  changes: FileChange[];
}
export interface FileChange {
  seq: number;
  time: string;
  op: FileEvent["op"];
  size: number;
  sha256?: string;
  from?: Text;
  as?: Text;
  by?: Actor;
}
export interface Call {
  seq: number;
  start: string;
  end: string;
  step?: string;
  llm: LLM;
  execs: number[];
  by?: Actor;
  flow_seq?: number;
  tools: { name: Text; execs: number[] }[];
}
export interface Credential {
  step: string;
  /** Empty: the step's own token at the broker. */
  name: string;
  broker?: string;
  via?: string;
  tag?: string;
  accessor_sha256?: string;
  seq: number;
  start: string;
  expires?: string;
  end: string | null;
  end_seq?: number;
  ended_by?: string;
  bars: { seq: number; from: string; to: string }[];
  uses: { seq: number; time: string; host?: Text; flow?: string }[];
  seqs: number[];
  /** The first 100 processes that opened a file with it. */
  readers: Reader[];
  opened?: number;
  opened_after?: number;
}
export interface Reader {
  by?: Actor;
  exe?: Text;
  argv?: Text[];
  paths: Text[];
  seq: number;
  first: string;
  last: string;
  times: number;
  after?: number;
}
export interface Finding {
  /** 0: it stands in no record, the model derived it. */
  seq: number;
  time: string;
  step?: string;
  rule: string;
  detail: string;
  evidence: number[];
  secret?: string;
  proc?: string;
  action?: string;
  derived: boolean;
}
export interface Why {
  seq: number;
  verdict?: Verdict;
  rule?: string;
  reason?: string;
  text: string;
  policy?: PolicyAt;
  causes: Link[];
  effects: Link[];
}
export interface PolicyAt {
  generation: number;
  digest: string;
  seq: number;
}
export interface Link {
  seq: number;
  time: string;
  kind: Kind;
  observer: Observer;
  relation: string;
  label: Text;
  claimed?: boolean;
}
export interface Changes {
  run: string;
  from: string;
  to: string;
  events: number;
  started: Proc[];
  ended: Proc[];
  files: FileHistory[];
  opened: Connection[];
  closed: Connection[];
  denied: Connection[];
  minted: Credential[];
  over: Credential[];
  calls: Call[];
  findings: Finding[];
  gaps: Gap[];
  output_bytes: number;
}
export interface Lanes {
  run: string;
  began: string;
  /** Milliseconds since began, here and below. */
  from: number;
  to: number;
  end: number;
  live: boolean;
  total: number;
  lanes: Lane[];
  gaps: Hole[];
  freezes: Hole[];
}
export interface Lane {
  name: string;
  total: number;
  items: Item[];
  buckets: Bucket[];
}
export type Mood = "ok" | "deny" | "revoke" | "fail" | "finding" | "claim" | "plain";
export interface Item {
  seq: number;
  at: number;
  end?: number;
  open?: boolean;
  until?: number;
  label: Text;
  kind: Kind;
  observer: Observer;
  mood: Mood;
  row: number;
}
export interface Bucket {
  at: number;
  width: number;
  count: number;
  denied: number;
  findings: number;
  seq: number;
}
export interface Hole {
  seq: number;
  from: number;
  to: number;
  what: string;
  lost: number;
  bytes: number;
}
export interface Piece {
  seq: number;
  at: number;
  step: string;
  stream: string;
  text: Text;
}
export interface Hit {
  run: string;
  seq: number;
  time: string;
  kind: Kind;
  observer: Observer;
  record?: RunRecord;
  verification?: Mark;
}
/** Of a record that is not what a host signed, or of which that is not known. */
export interface Mark {
  state: "fails" | "unsigned" | "cannot" | "unchecked";
  text?: string;
}
export interface ProblemDetails {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  hint?: string;
  instance?: string;
}

/** A sandbox that a program has created through the API. Session, metadata and caller are of users' choosing. */
export interface Sandbox {
  id: string;
  created: string;
  expires: string;
  latest: string;
  idle_until?: string;
  state: "promised" | "queued" | "starting" | "live" | "pausing" | "paused" | "archived" | "ending" | "ended";
  position?: number;
  queued?: string;
  quota?: string;
  expected?: string;
  project: string;
  template: string;
  tier?: string;
  caller: string;
  session?: string;
  metadata: Record<string, string>;
  cpus: number;
  memory_bytes: number;
  running: number;
  /** The latest last. */
  runs: string[];
  paused?: string;
  stored_bytes?: number;
  /** Why only the files are stored, and the processes ended. */
  files_only?: string;
  error?: string;
}
/** A TCP port of a sandbox on which a process listens. */
export interface Port {
  port: number;
  url?: string;
}

/** A link that opens a port in a browser once. */
export interface PortLogin {
  url: string;
  expires: string;
}

export interface QuotaUse {
  quota: string;
  used?: number;
  limit?: number;
}
export interface QueuedStart {
  tenant: string;
  project: string;
  id?: string;
  position: number;
  queued: string;
  quota: string;
  expected?: string;
}
export interface Quotas {
  time: string;
  host?: QuotaUse[];
  tenants: { tenant: string; quotas: QuotaUse[]; waiting: number; projects: { project: string; quotas: QuotaUse[]; waiting: number }[] }[];
  queue: QueuedStart[];
}
