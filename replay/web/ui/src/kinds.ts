// Generated from the tables in package audit by go test ./docs -run TestKinds -update. Do not edit.

export const kinds = [
  "run",
  "step",
  "exec",
  "exit",
  "file",
  "flow",
  "inbound",
  "dns",
  "http",
  "llm",
  "policy",
  "probe",
  "output",
  "vm",
  "copy",
  "secret",
  "gap",
  "finding",
  "access",
  "note",
] as const;
export type Kind = (typeof kinds)[number];

/** The kinds of records that runs have; the others stand in access logs. */
export const runKinds: Kind[] = [
  "run",
  "step",
  "exec",
  "exit",
  "file",
  "flow",
  "inbound",
  "dns",
  "http",
  "llm",
  "policy",
  "probe",
  "output",
  "vm",
  "copy",
  "secret",
  "gap",
  "finding",
];

/** The names of the payloads. */
export type Payload = "lifecycle" | "exec" | "exit" | "file" | "flow" | "inbound" | "dns" | "http" | "llm" | "policy" | "probe" | "output" | "vm" | "copy" | "secret" | "gap" | "finding" | "access" | "note";

/** What a record of a kind says, in a line. */
export const kindWords = new Map<string, string>([
  ["run", "the start or the end of a run"],
  ["step", "the start or the end of a step"],
  ["exec", "a program was started: a successful execve(2)"],
  ["exit", "the end of a process that had an exec; the host writes it where the guest reported none"],
  ["file", "a file or directory was created, written, read, renamed or deleted"],
  ["flow", "a network connection: the guest reports the attempt, the host what was enforced"],
  ["inbound", "a connection that a caller made to a TCP port of the sandbox, through the API"],
  ["dns", "a DNS query to the sandbox's resolver, and its answer"],
  ["http", "an HTTP request through the gateway"],
  ["llm", "an LLM API call through the gateway"],
  ["policy", "the egress policy in force from here on"],
  ["probe", "an attempt of the red team's to escape, and its result"],
  ["output", "a piece of the output of a step"],
  ["vm", "an operation on the VM"],
  ["copy", "files that were copied into or out of the sandbox"],
  ["secret", "an operation on a credential"],
  ["gap", "a known loss of events, hashes or output"],
  ["finding", "something that a reviewer should look at"],
  ["access", "an access to records through the API, or a refused one, or a change of a registered project"],
  ["note", "a note on a run or on a record of it"],
]);

/** What raises a finding, by its rule. */
export const findingWords = new Map<string, string>([
  ["connect-unseen", "A process of the guest claims a connection that the host never saw."],
  ["flow-unclaimed", "The host saw a flow that no process of the guest claims."],
  ["dns-tunnel", "Names below one domain look like data."],
  ["dns-sweep", "Very many different domains were queried and denied."],
  ["gateway-panic", "A mistake in the gateway's code ended a connection."],
  ["answer-overrun", "A host sent more than its answer, with no secret in it, on a connection that had carried a credential."],
  ["secret-in-dns", "A DNS query contained a value or a placeholder."],
  ["secret-in-output", "A step printed a value that a step of the run gets."],
  ["secret-in-flow", "The TLS server name of a connection contained a value."],
  ["secret-to-other-host", "A request carried a value to a host that its secret does not allow."],
  ["placeholder-to-other-host", "A request carried a placeholder to another host than its rule's."],
  ["secret-after-answer", "A host sent a value beyond the end of an answer, on a connection that had carried a credential."],
  ["secret-after-step", "A credential was used after its step had ended."],
  ["token-misuse", "Vault saw a step's token from elsewhere, or for another path."],
  ["secret-known-late", "The record already had the bytes of a newly minted value; they could not be masked earlier."],
]);

/** The rules of findings that guest and host disagree about. */
export const disagreements = new Set<string>(["connect-unseen", "flow-unclaimed"]);

/** What happened where a gap declares a loss, by its stage. */
export const stageWords = new Map<string, string>([
  ["kernel_ring", "a ring between the guest's kernel and the sensor was full, or a program was preempted by itself"],
  ["guest_queue", "the queue of closed files overflowed, count times"],
  ["guest", "the VM ended, or was ended while it did not answer, before its sensors had reported everything"],
  ["trace_sink", "gVisor's trace sink lost messages: the host did not read in time, or a message was too long or not UTF-8"],
  ["driver", "the tier of the run cannot observe what"],
  ["flow_ring", "the ring between the sandbox's packet filter and Custody was full"],
  ["output", "record.output was reached"],
  ["redact", "an event could not be encoded, or was longer than 4 MiB"],
  ["wal", "mode: degrade, and the disk could not be written for longer than the 4 MiB buffer lasts"],
  ["transport", "reserved"],
  ["store", "reserved"],
]);
