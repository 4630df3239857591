// Package audit defines what all other packages share: what an event is, who observed it, and how it
// enters the record.
//
// An Event is one fact. The Recorder redacts it, encodes it once and hands the
// exact bytes to the Log; nothing after that re-encodes them. On the wire a
// record is one JSON object:
//
//	{"v":1,"run":"r-...","seq":17,"time":"...","observer":"host","kind":"exec","step":"agent","exec":{...}}
//
// The Log writes the head (v, run, seq): only the Log assigns sequence
// numbers. The payload's member has the name of the kind, except for the kinds
// run and step, whose names the envelope uses: theirs is "lifecycle".
package audit

import "time"

// Version is the value of "v" in every record that this code writes.
const Version = 1

// Observer names who observed an event.
type Observer string

const (
	// Host events were observed by code outside the VM and can be trusted as far as the host can.
	Host Observer = "host"
	// Guest events are claims of a kernel that the workload may have compromised.
	Guest Observer = "guest"
)

// Kind names the payload of an event.
type Kind string

// The kinds of events. docs/events.md describes each payload.
const (
	KindRun     Kind = "run"
	KindStep    Kind = "step"
	KindExec    Kind = "exec"
	KindExit    Kind = "exit"
	KindFile    Kind = "file"
	KindFlow    Kind = "flow"
	KindInbound Kind = "inbound"
	KindDNS     Kind = "dns"
	KindHTTP    Kind = "http"
	KindLLM     Kind = "llm"
	KindPolicy  Kind = "policy"
	KindProbe   Kind = "probe"
	KindOutput  Kind = "output"
	KindVM      Kind = "vm"
	KindCopy    Kind = "copy"
	KindSecret  Kind = "secret"
	KindGap     Kind = "gap"
	KindFinding Kind = "finding"
	KindAccess  Kind = "access"
	KindNote    Kind = "note"
)

// Event is one fact before redaction. Time, Observer and Kind are required, and
// exactly the payload that belongs to Kind is set.
type Event struct {
	// Time is the host's clock in UTC. For guest events it is the time of arrival.
	Time     time.Time `json:"time"`
	Observer Observer  `json:"observer"`
	Kind     Kind      `json:"kind"`
	// Step is the name of the step that the event belongs to, empty outside any.
	Step string `json:"step,omitempty"`
	// Guest is set on guest events only and never the basis of a decision.
	Guest *GuestTime `json:"guest_time,omitempty"`

	Lifecycle *Lifecycle `json:"lifecycle,omitempty"` // KindRun, KindStep
	Exec      *Exec      `json:"exec,omitempty"`
	Exit      *Exit      `json:"exit,omitempty"`
	File      *File      `json:"file,omitempty"`
	Flow      *Flow      `json:"flow,omitempty"`
	Inbound   *Inbound   `json:"inbound,omitempty"`
	DNS       *DNS       `json:"dns,omitempty"`
	HTTP      *HTTP      `json:"http,omitempty"`
	LLM       *LLM       `json:"llm,omitempty"`
	Policy    *Policy    `json:"policy,omitempty"`
	Probe     *Probe     `json:"probe,omitempty"`
	Output    *Output    `json:"output,omitempty"`
	VM        *VM        `json:"vm,omitempty"`
	Copy      *Copy      `json:"copy,omitempty"`
	Secret    *Secret    `json:"secret,omitempty"`
	Gap       *Gap       `json:"gap,omitempty"`
	Finding   *Finding   `json:"finding,omitempty"`
	Access    *Access    `json:"access,omitempty"`
	Note      *Note      `json:"note,omitempty"`
}

// Record is an event as stored in the record, with its position in the run.
type Record struct {
	V   int    `json:"v"`
	Run string `json:"run"`
	Seq uint64 `json:"seq"`
	Event
}

// GuestTime is the guest's own clock at the event and how far it was from the host's.
type GuestTime struct {
	Time     time.Time `json:"time"`
	OffsetNS int64     `json:"offset_ns"` // guest minus host, measured at the last handshake
}

// Phase of a run or step.
type Phase string

// The phases of a run or a step.
const (
	PhaseStart Phase = "start"
	PhaseEnd   Phase = "end"
)

// Status of a run's or step's end.
type Status string

// How a run or a step can end.
const (
	StatusDone        Status = "done"        // the command ended by itself; see ExitCode
	StatusTimeout     Status = "timeout"     // limits.time, or the time of the step, was reached
	StatusCancelled   Status = "cancelled"   // the caller canceled it
	StatusPaused      Status = "paused"      // it is suspended in a snapshot, and continues in another run
	StatusInterrupted Status = "interrupted" // Custody or the VM died; closed at the next start
	StatusFailed      Status = "failed"      // Custody could not execute it; see Reason
)

// Lifecycle is the payload of the kinds run and step.
type Lifecycle struct {
	Phase          Phase  `json:"phase"`
	Name           string `json:"name,omitempty"`    // step name
	Argv           []Text `json:"argv,omitempty"`    // step start
	Env            []Text `json:"env,omitempty"`     // step start: the plain variables that the caller requested, NAME=VALUE
	Tenant         string `json:"tenant,omitempty"`  // run start; empty on a host that has none
	Project        string `json:"project,omitempty"` // run start
	Template       string `json:"template,omitempty"`
	TemplateDigest string `json:"template_digest,omitempty"`
	ProjectDigest  string `json:"project_digest,omitempty"` // of the whole project's file; run start
	// ProjectVersion, ProjectAuthor and NarrowingDigest are of runs of a registered project: the version whose file
	// ProjectDigest is of, who registered it, and the digest of the file that narrows it, if there is one.
	ProjectVersion  uint64 `json:"project_version,omitempty"`
	ProjectAuthor   string `json:"project_author,omitempty"`
	NarrowingDigest string `json:"narrowing_digest,omitempty"`

	Parent        *Parent  `json:"parent,omitempty"` // run start: the run whose state this one continues
	PolicyDigest  string   `json:"policy_digest,omitempty"`
	RulesetDigest string   `json:"ruleset_digest,omitempty"` // of the redactor's rules
	Tier          string   `json:"tier,omitempty"`           // isolation tier: qemu-kvm, qemu-tcg, ...
	TierNote      string   `json:"tier_note,omitempty"`      // what that tier does not guarantee
	Mode          string   `json:"mode,omitempty"`           // strict or degrade
	Version       string   `json:"version,omitempty"`        // of Custody
	Host          string   `json:"host,omitempty"`
	Steps         []string `json:"steps,omitempty"`
	Secrets       []string `json:"secrets,omitempty"`   // run start: name=kind of the source of each
	ExitCode      *int     `json:"exit_code,omitempty"` // end only
	Status        Status   `json:"status,omitempty"`    // end only
	Reason        string   `json:"reason,omitempty"`
	DurationNS    int64    `json:"duration_ns,omitempty"`
}

// Parent names the closed record of the run that another one continues: its processes, memory and disk. Manifest commits to
// that whole record, because each manifest has the digest of the one before.
type Parent struct {
	Op       string `json:"op"` // OpResume or OpFork
	Run      string `json:"run"`
	Seq      uint64 `json:"seq"`      // of the last record
	Root     string `json:"root"`     // of the last manifest: the Merkle root in hex
	Manifest string `json:"manifest"` // SHA-256 of the last signed manifest in hex
}

// The ways to continue a run. A run is resumed once, and forked any number of times.
const (
	OpResume = "resume"
	OpFork   = "fork"
)

// Exec is one successful execve in the guest.
type Exec struct {
	Proc      string `json:"proc"` // unique over all time: see ProcID
	Parent    string `json:"parent,omitempty"`
	PID       int    `json:"pid"` // in the guest's initial pid namespace
	PPID      int    `json:"ppid"`
	Exe       Text   `json:"exe"`
	Argv      []Text `json:"argv"`
	Cwd       Text   `json:"cwd"`
	UID       int    `json:"uid"`
	Truncated bool   `json:"truncated,omitempty"` // argv was longer than the sensor keeps
	// ArgvBytes and ArgvSHA256 describe the whole argv (NUL-terminated strings) when Truncated.
	ArgvBytes  int    `json:"argv_bytes,omitempty"`
	ArgvSHA256 string `json:"argv_sha256,omitempty"`
	// LLM is the id of the LLM API call that requested this command, and ToolCall the id of
	// its tool call. The host matches them by their common argument; set on the host only.
	LLM      string `json:"llm,omitempty"`
	ToolCall Text   `json:"tool_call,omitempty"`
}

// Exit is the end of a process that had an Exec.
type Exit struct {
	Proc       string `json:"proc"`
	PID        int    `json:"pid"`
	Code       int    `json:"code"`
	Signal     int    `json:"signal,omitempty"`
	DurationNS int64  `json:"duration_ns"`
	// Synthetic is set when no exit was seen: the run ended and Code is unknown (-1).
	Synthetic bool `json:"synthetic,omitempty"`
}

// FileOp is an operation on a file.
type FileOp string

// The operations on files that the sensor reports.
const (
	FileCreate FileOp = "create"
	FileWrite  FileOp = "write" // closed after writing; size and hash are those at close
	FileRead   FileOp = "read"
	FileRename FileOp = "rename"
	FileDelete FileOp = "delete"
	FileChroot FileOp = "chroot"
)

// The operations that only the API reports, in addition.
const (
	FileStat   FileOp = "stat"
	FileList   FileOp = "list"
	FilePack   FileOp = "pack"   // what is in a directory, as a tar archive
	FileUnpack FileOp = "unpack" // of a tar archive into a directory
	FileWatch  FileOp = "watch"  // changes of a directory were reported from now on
)

// File is one operation on a file in the guest.
type File struct {
	Proc string `json:"proc,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// Parent is set when Proc never called execve, and so has no Exec that names its parent.
	Parent string `json:"parent,omitempty"`
	Op     FileOp `json:"op"`
	Path   Text   `json:"path"`
	To     Text   `json:"to,omitempty"`     // rename only
	Source Text   `json:"source,omitempty"` // another name of the file; of the create of a hard link only
	// Device (major:minor) and Inode identify a file, whatever its names.
	Device string `json:"device,omitempty"`
	Inode  string `json:"inode,omitempty"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
	// Unhashed is the reason for a missing hash.
	Unhashed string `json:"unhashed,omitempty"`
	// Secrets are the names of the secrets in a file which was read. The host adds them: it knows which secrets it delivered to which file.
	Secrets []string `json:"secrets,omitempty"`

	// The fields below are of operations through the API, which have no process.

	Caller Text  `json:"caller,omitempty"` // the principal who asked for it
	Offset int64 `json:"offset,omitempty"` // read: of the first byte
	Error  Text  `json:"error,omitempty"`  // why it failed; a read can have returned Size bytes before
}

// Changes reports whether the operation took place and concerns the content or a name of a file.
func (f *File) Changes() bool {
	switch f.Op {
	case FileChroot, FileStat, FileList, FilePack, FileUnpack, FileWatch: // each file that is unpacked has an event
		return false
	}
	return f.Error == ""
}

// FlowState is a point in a flow's life.
type FlowState string

// The states of a flow. The sensor reports attempts only; verdicts come from enforcers.
const (
	FlowAttempt FlowState = "attempt"
	FlowOpen    FlowState = "open"
	FlowClose   FlowState = "close"
	FlowDeny    FlowState = "deny"
	FlowRevoke  FlowState = "revoke"
)

// Verdict is the policy's decision.
type Verdict string

// The verdicts of enforcers.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Flow is a network connection or an attempted one.
type Flow struct {
	// ID is the same in all events of one flow of the run; only flows that an enforcer allowed have one.
	ID   string `json:"id,omitempty"`
	Proc string `json:"proc,omitempty"` // as the guest's sensor claims
	PID  int    `json:"pid,omitempty"`
	// Parent is set when Proc never called execve, and so has no Exec that names its parent.
	Parent  string    `json:"parent,omitempty"`
	State   FlowState `json:"state"`
	Proto   string    `json:"proto"` // tcp, udp, icmp, icmp6, ..., or a number
	SrcIP   string    `json:"src_ip,omitempty"`
	SrcPort int       `json:"src_port,omitempty"`
	DstIP   string    `json:"dst_ip,omitempty"`
	DstPort int       `json:"dst_port,omitempty"`
	Errno   int       `json:"errno,omitempty"` // of the attempt, 0 for success

	// The fields below are set by enforcers only.

	Name    Text    `json:"name,omitempty"` // the host name that the destination was resolved from
	Verdict Verdict `json:"verdict,omitempty"`
	Rule    string  `json:"rule,omitempty"` // normal form of the rule that decided, or "default"
	Reason  string  `json:"reason,omitempty"`
	DNSSeq  uint64  `json:"dns_seq,omitempty"` // of the answer that the destination was resolved from
	// Generation of the policy that applied; its policy event has the digest.
	Generation uint32 `json:"generation,omitempty"`
	Peer       string `json:"peer,omitempty"` // address and port that the gateway dialled
	SNI        Text   `json:"sni,omitempty"`  // the client's server name, if it is not Name
	// Bytes and packets at the guest's network interface, headers included, since the beginning of the flow.
	BytesOut   uint64 `json:"bytes_out,omitempty"`
	BytesIn    uint64 `json:"bytes_in,omitempty"`
	PacketsOut uint64 `json:"packets_out,omitempty"`
	PacketsIn  uint64 `json:"packets_in,omitempty"`
	DurationNS int64  `json:"duration_ns,omitempty"`
	// Count is the number of denials that this event represents, if equal ones were combined.
	Count uint64 `json:"count,omitempty"`
}

// InboundOp is a point in the life of a connection to a port of the sandbox.
type InboundOp string

// The operations on connections to ports.
const (
	InboundOpen   InboundOp = "open"   // the guest has accepted it; no byte was carried before the event was durable
	InboundClose  InboundOp = "close"  // both directions have ended
	InboundRefuse InboundOp = "refuse" // there is no connection; see Reason
)

// Inbound is a connection that a caller of the API made to a TCP port of the sandbox.
type Inbound struct {
	ID   string    `json:"id"` // the same in all events of one connection of the run
	Op   InboundOp `json:"op"`
	Port int       `json:"port"`
	Who  string    `json:"who"` // the caller, as in the access log
	Via  string    `json:"via"` // how it was made: tunnel, by the API, or http, by a request to the port's host name
	// BytesIn are those that the sandbox took, BytesOut those that it sent.
	BytesIn    int64  `json:"bytes_in,omitempty"`
	BytesOut   int64  `json:"bytes_out,omitempty"`
	Reason     string `json:"reason,omitempty"` // why it was refused, or did not end by itself
	DurationNS int64  `json:"duration_ns,omitempty"`
}

// DNS is a query that a guest sent to the resolver, and its answer.
type DNS struct {
	Name      Text     `json:"name"`
	Type      string   `json:"type"`            // A, AAAA, HTTPS, ...
	Proto     string   `json:"proto,omitempty"` // udp or tcp
	RCode     string   `json:"rcode"`           // NOERROR, REFUSED, ...
	Answers   []string `json:"answers,omitempty"`
	Chain     []Text   `json:"chain,omitempty"` // names of the CNAME chain
	TTL       uint32   `json:"ttl,omitempty"`   // seconds, of the answer as given
	Verdict   Verdict  `json:"verdict"`
	Rule      string   `json:"rule"`
	Reason    string   `json:"reason,omitempty"`
	Synthetic bool     `json:"synthetic,omitempty"` // the address represents the name in this sandbox only
	// Dropped are addresses of the upstream's answer that the resolver withheld from the guest.
	Dropped    []string `json:"dropped,omitempty"`
	Upstream   string   `json:"upstream,omitempty"` // the server that was asked; empty if none was
	Cached     bool     `json:"cached,omitempty"`
	LatencyNS  int64    `json:"latency_ns,omitempty"`
	Generation uint32   `json:"generation,omitempty"`
}

// HTTP is one request through the gateway.
type HTTP struct {
	Flow       string  `json:"flow,omitempty"`  // id of the flow
	Proto      string  `json:"proto,omitempty"` // HTTP/1.1, HTTP/2.0
	Method     Text    `json:"method"`
	Host       Text    `json:"host"`
	Path       Text    `json:"path"`             // with the query
	Status     int     `json:"status,omitempty"` // as the guest got it
	BytesOut   int64   `json:"bytes_out,omitempty"`
	BytesIn    int64   `json:"bytes_in,omitempty"` // of bodies
	Verdict    Verdict `json:"verdict"`
	Rule       string  `json:"rule"`
	Reason     string  `json:"reason,omitempty"`
	Generation uint32  `json:"generation,omitempty"`
	DurationNS int64   `json:"duration_ns,omitempty"`
	Credential string  `json:"credential,omitempty"` // name of the secret that the gateway inserted
	Redacted   int     `json:"redacted,omitempty"`   // values masked in the answer before the guest got it
	LLM        string  `json:"llm,omitempty"`        // id of the LLM API call of this request
}

// LLM is one LLM API call through the gateway, recorded when its answer has ended.
type LLM struct {
	ID       string `json:"id"`             // the same in the exec events that the call requested
	Flow     string `json:"flow,omitempty"` // id of the flow
	Provider string `json:"provider"`       // the API's shape: anthropic, openai or gemini
	API      string `json:"api"`            // messages, chat, responses, generate, ...
	Host     Text   `json:"host"`
	Model    Text   `json:"model,omitempty"` // the model that answered, or else the requested one
	// Tokens as the provider counts them. Input includes tokens read from a cache and
	// written to it; Output includes those of reasoning.
	InputTokens      int64      `json:"input_tokens"`
	OutputTokens     int64      `json:"output_tokens"`
	CacheReadTokens  int64      `json:"cache_read_tokens,omitempty"`
	CacheWriteTokens int64      `json:"cache_write_tokens,omitempty"`
	ReasoningTokens  int64      `json:"reasoning_tokens,omitempty"` // part of OutputTokens
	Tools            []Text     `json:"tools,omitempty"`            // names of the tools on offer
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`
	StopReason       Text       `json:"stop_reason,omitempty"` // in the provider's words
	Status           int        `json:"status,omitempty"`      // of HTTP
	Error            Text       `json:"error,omitempty"`       // in the provider's words
	Stream           bool       `json:"stream,omitempty"`      // the answer came as server-sent events
	Retry            int        `json:"retry,omitempty"`       // the request's ordinal among equal ones in a row, from 1 for the first repeat
	RequestSHA256    string     `json:"request_sha256,omitempty"`
	// Incomplete is the reason why the figures above may be too low: the answer was cut off, too long or not understood.
	Incomplete string `json:"incomplete,omitempty"`
	DurationNS int64  `json:"duration_ns"`
	// FirstTokenNS is the time from the request to the first byte of content; 0 if there was none.
	FirstTokenNS int64 `json:"first_token_ns,omitempty"`
	// Spent are the run's tokens so far, including this call's; Budget is limits.llm_tokens (0: none).
	Spent  int64 `json:"spent,omitempty"`
	Budget int64 `json:"budget,omitempty"`
}

// ToolCall is a tool call that a model requested.
type ToolCall struct {
	ID     Text   `json:"id,omitempty"` // the provider's
	Name   Text   `json:"name"`
	SHA256 string `json:"sha256"` // of the arguments, exactly as received
	// Arguments is the JSON text, cut where Truncated.
	Arguments Text `json:"arguments,omitempty"`
	Truncated bool `json:"truncated,omitempty"`
}

// Policy is the policy that applies from here on.
type Policy struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
	Previous   string `json:"previous,omitempty"` // digest
	Rules      []Text `json:"rules,omitempty"`    // in normal form; the flows that they end have revoke events
}

// Probe is an attempt of the red team to escape, and its outcome.
type Probe struct {
	Name     string `json:"name"`
	Family   string `json:"family,omitempty"` // ipv4 or ipv6
	Blocked  bool   `json:"blocked"`          // no host outside observed it
	Recorded bool   `json:"recorded"`         // the record of the attacked run has it
	Run      string `json:"attacked,omitempty"`
	Seq      uint64 `json:"evidence,omitempty"` // the event of that run's record that has it
	Detail   Text   `json:"detail,omitempty"`
}

// Output is a piece of what a step wrote to its terminal or pipes, after redaction.
type Output struct {
	Stream string `json:"stream"` // stdout, stderr or tty
	Offset int64  `json:"offset"` // bytes of the redacted stream before this piece
	Text   Text   `json:"text"`
}

// VM is an operation of the driver on the virtual machine.
type VM struct {
	Op         string `json:"op"` // create, restore, boot, freeze, thaw, pause, snapshot, silent, destroy
	Driver     string `json:"driver,omitempty"`
	Tier       string `json:"tier,omitempty"`
	Reason     string `json:"reason,omitempty"`
	DurationNS int64  `json:"duration_ns,omitempty"`
}

// SecretOp is a point in the life of a credential.
type SecretOp string

// The operations on credentials.
const (
	SecretMint    SecretOp = "mint"    // the broker issued it for one step
	SecretDeliver SecretOp = "deliver" // it is about to be handed over
	SecretUse     SecretOp = "use"     // the gateway is about to put it into a request of Flow
	SecretRenew   SecretOp = "renew"   // the step is live, and the broker has renewed it
	SecretRevoke  SecretOp = "revoke"  // the broker has confirmed the end
	SecretExpire  SecretOp = "expire"  // it expired before it was revoked
	SecretRefuse  SecretOp = "refuse"  // a request was refused; see Reason
)

// Secret is an operation on a credential; no field has the value. Name is
// empty if the operation is about all credentials of the step's lease.
type Secret struct {
	Name   string   `json:"name,omitempty"`
	Op     SecretOp `json:"op"`
	Broker string   `json:"broker,omitempty"` // local or vault
	Via    string   `json:"via,omitempty"`    // how it is delivered: env, file, header, token
	Tag    string   `json:"tag,omitempty"`    // of the value, as in markers: equal values have equal tags
	// Accessor is the SHA-256 of the lease's accessor at the broker: it identifies the lease and cannot be used there.
	Accessor string `json:"accessor_sha256,omitempty"`
	// TTLNS is how long the credential lives from here unless it is renewed.
	TTLNS   int64     `json:"ttl_ns,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Leases  int       `json:"leases,omitempty"` // number of leases of dynamic engines that depend on it
	Flow    string    `json:"flow,omitempty"`   // use: id of the flow that carries the request
	Host    Text      `json:"host,omitempty"`   // use: that it goes to
	Reason  string    `json:"reason,omitempty"`
}

// Gap is a declared hole in the record: what was lost, where and why.
type Gap struct {
	Stage Stage  `json:"stage"`
	What  string `json:"what,omitempty"`
	First uint64 `json:"first,omitempty"` // first lost seq, where lost records had one
	Last  uint64 `json:"last,omitempty"`
	Count uint64 `json:"count"`           // lost events; may be 0 when only bytes are known
	Bytes int64  `json:"bytes,omitempty"` // lost bytes of output
	Cause string `json:"cause"`
}

// Finding is an observation that a reviewer should examine.
type Finding struct {
	Rule   Rule   `json:"rule"`
	Detail string `json:"detail"`
	Secret string `json:"secret,omitempty"` // name of the credential that it concerns
	Proc   string `json:"proc,omitempty"`
	Seq    uint64 `json:"evidence,omitempty"` // of the record that shows it; for output, of the last record before it
	Action string `json:"action,omitempty"`   // the reaction: revoke, freeze or end
}

// CopyOp is the kind of a copy event.
type CopyOp string

// The kinds of copy events.
const (
	CopyList CopyOp = "list" // some of its files
	CopyEnd  CopyOp = "end"  // the copy as a whole, after all lists
)

// The directions of a copy.
const (
	CopyIn  = "in"  // from the host into the workspace
	CopyOut = "out" // from the workspace to the host
)

// Copy reports a copy between a directory of the host and the workspace. Each list is durable before a file in it gets
// its name on the host.
type Copy struct {
	Direction string       `json:"direction"` // in or out
	Op        CopyOp       `json:"op"`
	Dir       Text         `json:"dir,omitempty"`    // of the host; end only
	First     int64        `json:"first,omitempty"`  // index of the list's first file in the whole copy
	Salt      string       `json:"salt,omitempty"`   // 16 random bytes in hex, of the leaves of a list
	Files     []CopiedFile `json:"files,omitempty"`  // list only
	Count     int64        `json:"count,omitempty"`  // of all files; end only
	Bytes     int64        `json:"bytes,omitempty"`  // of their content; end only
	Root      string       `json:"root,omitempty"`   // of the Merkle tree over all files: see proof.CopyLeaf; end only
	Reason    string       `json:"reason,omitempty"` // why the copy as a whole was not executed; end only
}

// CopiedFile is a regular file or a symbolic link that is copied.
type CopiedFile struct {
	Path   Text   `json:"path"`         // in the workspace
	As     Text   `json:"as,omitempty"` // the name on the host, if it differs
	Mode   string `json:"mode"`         // octal, such as 0644
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // of a regular file
	Link   Text   `json:"link,omitempty"`   // target of a symbolic link
}

// Access is an access to the record through the API, recorded before the response, or an attempt that was refused. It is also
// a change of a registered project on the command line, recorded before it is in force.
// It is in the access log of the host that served it, which is a separate run.
type Access struct {
	Who    string `json:"who,omitempty"`    // name of the principal; empty if none was recognised
	Via    string `json:"via,omitempty"`    // token, oidc or once; cli for a registered project and for commands through the service's socket; lifecycle for what no caller asked for
	Role   string `json:"role,omitempty"`   // the principal's role in Tenant
	Tenant string `json:"tenant,omitempty"` // the requested tenant
	Action string `json:"action"`           // view, follow, search, verify, export, report, note, login, logout or manage
	Route  string `json:"route"`            // of the API, such as "GET /api/v1/runs/{run}"; of a command, such as "custody timeline"
	About  Text   `json:"about,omitempty"`  // the run, as requested
	Query  Text   `json:"query,omitempty"`  // the request's query
	Remote string `json:"remote,omitempty"` // address of the client
	// Verdict is deny where the request was refused, for Reason and with Status.
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	Status  int     `json:"status,omitempty"` // of HTTP
	Count   uint64  `json:"count,omitempty"`  // how many refusals this event represents, if equal ones were combined
	// Project, ProjectVersion and ProjectDigest are what an admin registered or withdrew.
	Project        string `json:"project,omitempty"`
	ProjectVersion uint64 `json:"project_version,omitempty"`
	ProjectDigest  string `json:"project_digest,omitempty"`
}
