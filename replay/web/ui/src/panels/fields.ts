// What the fields of a record mean, in words, and how each is shown. docs/events.md is the source. A field
// that is not listed is shown all the same, by its name: nothing of a record is left out.

import type { Payload } from "../kinds";

/** How a value is shown. */
export type Form =
  | "text" // anything; as text
  | "argv"
  | "list"
  | "hash"
  | "seq" // of another record of the run: a link
  | "seqRange"
  | "time"
  | "duration" // nanoseconds
  | "bytes"
  | "count"
  | "number" // of something, such as a port: no separators
  | "proc"
  | "verdict"
  | "flag"
  | "host"
  | "path"
  | "secret"
  | "rule"
  | "tools";

export interface Field {
  name: string;
  label: string;
  form: Form;
  value: unknown;
}

type Spec = [name: string, label: string, form: Form];

const verdict: Spec[] = [
  ["verdict", "Verdict", "verdict"],
  ["rule", "Rule that decided", "text"],
  ["reason", "Reason", "text"],
];

const specs: Record<Payload, Spec[]> = {
  lifecycle: [
    ["phase", "Phase", "text"], ["name", "Step", "text"], ["status", "How it ended", "text"], ["exit_code", "Exit code", "number"],
    ["reason", "Reason", "text"], ["argv", "Command", "argv"], ["env", "Plain variables", "argv"], ["duration_ns", "Lasted", "duration"], ["tenant", "Tenant", "text"],
    ["project", "Project", "text"], ["tier", "Isolation tier", "text"], ["tier_note", "What that tier is worth", "text"],
    ["mode", "Mode", "text"], ["template", "Template", "text"], ["template_digest", "Template digest", "hash"],
    ["project_digest", "Project file, SHA-256", "hash"], ["project_version", "Registered version", "number"],
    ["project_author", "Registered by", "text"], ["narrowing_digest", "Narrowing file, SHA-256", "hash"], ["parent", "Continues the run", "text"], ["policy_digest", "Policy digest", "hash"], ["ruleset_digest", "Redactor's rules, digest", "hash"],
    ["steps", "Planned steps", "list"], ["secrets", "Secrets and the kinds of their sources", "list"], ["version", "Custody's version", "text"], ["host", "Host", "text"],
  ],
  exec: [
    ["argv", "Command", "argv"], ["exe", "Program", "path"], ["cwd", "Working directory", "text"], ["uid", "User id in the guest", "number"],
    ["pid", "Process id", "number"], ["ppid", "Parent's process id", "number"], ["proc", "Process", "proc"], ["parent", "Parent", "proc"],
    ["llm", "Requested by the LLM API call", "text"], ["tool_call", "Tool call", "text"], ["truncated", "Command was truncated", "flag"],
    ["argv_bytes", "Whole command", "bytes"], ["argv_sha256", "Whole command, SHA-256", "hash"],
  ],
  exit: [
    ["code", "Exit code", "number"], ["signal", "Ended by signal", "number"], ["duration_ns", "Lasted", "duration"], ["pid", "Process id", "number"],
    ["proc", "Process", "proc"], ["synthetic", "This exit was not observed: the VM was gone", "flag"],
  ],
  file: [
    ["op", "Operation", "text"], ["path", "Path", "path"], ["to", "New path", "path"], ["source", "Link to", "path"], ["size", "Size", "bytes"], ["sha256", "Content, SHA-256", "hash"],
    ["offset", "From byte", "number"], ["caller", "Through the API by", "text"], ["error", "Failed because", "text"],
    ["unhashed", "No hash because", "text"], ["secrets", "Holds the secrets", "list"], ["inode", "Inode", "text"], ["device", "Device", "text"], ["pid", "Process id", "number"], ["proc", "Process", "proc"], ["parent", "Process's parent", "proc"],
  ],
  flow: [
    ["state", "State", "text"], ...verdict, ["name", "Host name", "host"], ["sni", "Server asked for (SNI)", "host"], ["dst_ip", "Destination address", "host"],
    ["dst_port", "Destination port", "number"], ["proto", "Protocol", "text"], ["peer", "Gateway dialled", "text"], ["dns_seq", "Rests on the DNS answer", "seq"],
    ["bytes_out", "Bytes out of the guest", "bytes"], ["bytes_in", "Bytes into the guest", "bytes"], ["packets_out", "Packets out", "count"],
    ["packets_in", "Packets in", "count"], ["duration_ns", "Lasted", "duration"], ["count", "Number of denials", "count"],
    ["src_ip", "Source address", "text"], ["src_port", "Source port", "number"], ["errno", "Error number in the guest", "number"], ["id", "Flow", "text"],
    ["generation", "Policy generation", "number"], ["pid", "Process id (guest's claim)", "number"], ["proc", "Process (guest's claim)", "proc"],
    ["parent", "Process's parent (guest's claim)", "proc"],
  ],
  inbound: [
    ["op", "Operation", "text"], ["port", "Port", "number"], ["who", "Caller", "text"], ["via", "Made over", "text"], ["reason", "Reason", "text"],
    ["bytes_in", "Bytes into the sandbox", "bytes"], ["bytes_out", "Bytes out of the sandbox", "bytes"], ["duration_ns", "Lasted", "duration"], ["id", "Connection", "text"],
  ],
  dns: [
    ["name", "Name asked for", "host"], ["type", "Type", "text"], ["rcode", "Answer's code", "text"], ["answers", "Answers", "list"], ...verdict,
    ["synthetic", "The address represents the name in this sandbox only", "flag"], ["chain", "CNAME chain", "list"], ["ttl", "TTL in seconds", "count"],
    ["dropped", "Addresses withheld", "list"], ["upstream", "Upstream server", "text"], ["cached", "Answered from an earlier query", "flag"],
    ["latency_ns", "The server took", "duration"], ["proto", "Asked over", "text"], ["generation", "Policy generation", "number"],
  ],
  http: [
    ["method", "Method", "text"], ["host", "Host", "host"], ["path", "Path", "text"], ["status", "Status", "number"], ...verdict,
    ["credential", "Credential that the gateway added", "secret"], ["redacted", "Values masked in the answer", "count"],
    ["bytes_out", "Body of the request", "bytes"], ["bytes_in", "Body of the answer", "bytes"], ["duration_ns", "Lasted", "duration"],
    ["proto", "Version", "text"], ["flow", "Flow", "text"], ["llm", "Model's call", "text"], ["generation", "Policy generation", "number"],
  ],
  llm: [
    ["id", "Call", "text"], ["provider", "Shape of the API", "text"], ["api", "Operation", "text"], ["host", "Host", "host"], ["model", "Model", "text"],
    ["input_tokens", "Tokens in", "count"], ["output_tokens", "Tokens out", "count"], ["cache_read_tokens", "Of those read from a cache", "count"],
    ["cache_write_tokens", "Of those written to a cache", "count"], ["reasoning_tokens", "Of those spent on reasoning", "count"],
    ["spent", "Spent by the run so far", "count"], ["budget", "Budget of the run", "count"], ["tools", "Tools on offer", "list"],
    ["tool_calls", "Tools called", "tools"], ["stop_reason", "Stopped because", "text"], ["status", "Status", "number"], ["error", "Error", "text"],
    ["incomplete", "Figures may be short because", "text"], ["duration_ns", "Lasted", "duration"], ["first_token_ns", "First content after", "duration"],
    ["stream", "Answer came as a stream", "flag"], ["retry", "Repeat number", "number"], ["request_sha256", "Request, SHA-256", "hash"], ["flow", "Flow", "text"],
  ],
  policy: [
    ["generation", "Generation", "number"], ["digest", "Digest", "hash"], ["previous", "Digest of the one before", "hash"], ["rules", "Rules", "list"],
  ],
  probe: [
    ["name", "Attempt", "text"], ["family", "Address family", "text"], ["blocked", "Blocked", "flag"], ["recorded", "Recorded by the attacked run", "flag"],
    ["attacked", "Attacked run", "text"], ["evidence", "Evidence there, seq", "number"], ["detail", "Detail", "text"],
  ],
  output: [["stream", "Stream", "text"], ["offset", "Bytes of the stream before it", "bytes"], ["text", "Text", "text"]],
  vm: [
    ["op", "Operation", "text"], ["reason", "Reason", "text"], ["driver", "Driver", "text"], ["tier", "Isolation tier", "text"], ["duration_ns", "Lasted", "duration"],
  ],
  copy: [
    ["direction", "Direction", "text"], ["op", "Part", "text"], ["dir", "Directory of the host", "path"], ["count", "Files", "count"], ["bytes", "Content", "bytes"],
    ["root", "Root over all files", "hash"], ["reason", "Reason", "text"], ["first", "Place of the first file", "number"], ["files", "Files", "list"], ["salt", "Salt of the leaves", "hash"],
  ],
  secret: [
    ["name", "Credential", "secret"], ["op", "Operation", "text"], ["reason", "Reason", "text"], ["broker", "Broker", "text"], ["via", "Delivered as", "text"],
    ["ttl_ns", "Lives for", "duration"], ["expires", "Until, unless renewed", "time"], ["host", "Goes to", "host"], ["flow", "Flow", "text"],
    ["tag", "Tag of the value", "text"], ["accessor_sha256", "Lease's accessor, SHA-256", "hash"], ["leases", "Leases that hang on it", "count"],
  ],
  gap: [
    ["stage", "Lost at", "text"], ["what", "What was lost", "text"], ["cause", "Cause", "text"], ["count", "Events lost", "count"], ["bytes", "Bytes lost", "bytes"],
    ["first", "First lost seq", "number"], ["last", "Last lost seq", "number"],
  ],
  finding: [
    ["rule", "Finding", "rule"], ["detail", "Detail", "text"], ["action", "What was done", "text"], ["secret", "Credential", "secret"],
    ["evidence", "Shown by record", "seq"], ["proc", "Process", "proc"],
  ],
  access: [
    ["who", "Who", "text"], ["via", "Recognised by", "text"], ["role", "Role", "text"], ["tenant", "Tenant", "text"], ["action", "Action", "text"], ["about", "Run", "text"],
    ["query", "Query", "text"], ["verdict", "Verdict", "verdict"], ["reason", "Reason", "text"], ["status", "Status", "number"], ["count", "Number of refusals", "count"],
    ["route", "Route", "text"], ["remote", "Client's address", "text"], ["project", "Project", "text"], ["project_version", "Registered version", "number"],
    ["project_digest", "Project file, SHA-256", "hash"],
  ],
  note: [
    ["who", "Author", "text"], ["via", "Recognised by", "text"], ["role", "Role", "text"], ["tenant", "Tenant", "text"], ["about", "Run", "text"], ["seq", "Record of that run", "number"],
    ["leaf", "Leaf of that record", "hash"], ["text", "Text", "text"], ["tags", "Tags", "text"], ["withdraws", "Withdraws the note", "text"], ["remote", "Client's address", "text"],
  ],
};

const isPayload = (name: string): name is Payload => Object.hasOwn(specs, name);

/** Name of the payload of a kind. */
export function payloadName(kind: string): string {
  return kind === "run" || kind === "step" ? "lifecycle" : kind;
}

/** The fields of a record's payload in the order in which a person reads them, then all that are not known. */
export function fieldsOf(record: Record<string, unknown>): Field[] {
  const name = payloadName(String(record.kind));
  const payload = record[name];
  const fields: Field[] = [];
  const rest = isObject(payload) ? new Map(Object.entries(payload)) : new Map<string, unknown>();
  for (const [key, label, form] of isPayload(name) ? specs[name] : []) {
    if (!rest.has(key)) continue;
    fields.push({ name: `${name}.${key}`, label, form, value: rest.get(key) });
    rest.delete(key);
  }
  for (const [key, value] of rest) fields.push({ name: `${name}.${key}`, label: key, form: "text", value });
  for (const [key, value] of Object.entries(record)) {
    if (!envelope.has(key) && key !== name) fields.push({ name: key, label: key, form: "text", value });
  }
  return fields;
}

const envelope = new Set(["v", "run", "seq", "time", "observer", "kind", "step", "guest_time"]);

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
