package replay

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// The answers that a Story gives. Their JSON is what the API serves. Text that a guest could
// have chosen stands in them as it was recorded (audit.Text): who shows it escapes it.
// Lists are never null.

// Actor is a process as the guest's sensor claims it.
type Actor struct {
	Proc string     `json:"proc"`
	PID  int        `json:"pid,omitempty"`
	Name audit.Text `json:"name,omitempty"` // base name of argv[0] of its latest exec, or of its parent's with Child
	// Child is set when the process never called execve.
	Child bool   `json:"child,omitempty"`
	Seq   uint64 `json:"seq,omitempty"` // of that exec
}

// Proc is a process of the whole run, one for each exec: the same proc id can come several times.
type Proc struct {
	Seq      uint64         `json:"seq"`                // of the exec
	ExitSeq  uint64         `json:"exit_seq,omitempty"` // 0 while it runs, or when another exec followed
	Proc     string         `json:"proc"`
	Parent   string         `json:"parent,omitempty"`     // proc id, as far as it is known
	Above    uint64         `json:"parent_seq,omitempty"` // seq of the exec that this one hangs below in the tree; 0 at the top
	PID      int            `json:"pid"`
	PPID     int            `json:"ppid"`
	Argv     []audit.Text   `json:"argv"`
	Exe      audit.Text     `json:"exe"`
	Cwd      audit.Text     `json:"cwd"`
	UID      int            `json:"uid"`
	Step     string         `json:"step"`
	Observer audit.Observer `json:"observer"`
	Start    time.Time      `json:"start"`
	End      *time.Time     `json:"end"` // nil while it runs
	Code     *int           `json:"code"`
	Signal   int            `json:"signal,omitempty"`
	// Synthetic is set when no exit was seen and the run's end stands in for it.
	Synthetic bool       `json:"synthetic,omitempty"`
	Replaced  bool       `json:"replaced,omitempty"` // ended by another exec of the same process
	LLM       string     `json:"llm,omitempty"`      // id of the model's call that asked for it
	ToolCall  audit.Text `json:"tool_call,omitempty"`
	Files     int        `json:"files"` // file records that name it
	Flows     int        `json:"flows"` // attempts that name it
}

// Connection is one thing that wanted to get out, in the order in which a waterfall shows
// them: a flow with the question that it rests on and its requests, or a question alone.
type Connection struct {
	Seq      uint64         `json:"seq"` // of the first of the host's records of it, or of the guest's claim if there is no other
	ID       string         `json:"flow,omitempty"`
	Observer audit.Observer `json:"observer"`
	Name     audit.Text     `json:"name"` // host name, or the address where there is none
	DstIP    string         `json:"dst_ip,omitempty"`
	DstPort  int            `json:"dst_port,omitempty"`
	Proto    string         `json:"proto"` // tcp, udp, ..., or dns for a question that no flow followed
	State    string         `json:"state"` // open, close, deny, revoke, attempt (claimed only), answered or refused (dns only)
	Verdict  audit.Verdict  `json:"verdict,omitempty"`
	Rule     string         `json:"rule,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Start    time.Time      `json:"start"`
	End      *time.Time     `json:"end"` // nil while it is open
	EndSeq   uint64         `json:"end_seq,omitempty"`
	BytesOut uint64         `json:"bytes_out"`
	BytesIn  uint64         `json:"bytes_in"`
	Count    uint64         `json:"count,omitempty"`
	Peer     string         `json:"peer,omitempty"`
	SNI      audit.Text     `json:"sni,omitempty"`
	DNS      *Question      `json:"dns,omitempty"`
	Requests []Request      `json:"requests"`
	By       *Actor         `json:"by,omitempty"` // as the guest claims
	Claim    uint64         `json:"claim_seq,omitempty"`
	// Unclaimed: the host saw it, and no process of the guest's says that it was its own.
	// Unseen: a process of the guest's says so, and the host saw nothing of it.
	Unclaimed bool `json:"unclaimed,omitempty"`
	Unseen    bool `json:"unseen,omitempty"`
}

// Question is what a guest asked the resolver for a Connection.
type Question struct {
	Seq       uint64        `json:"seq"`
	Time      time.Time     `json:"time"`
	Type      string        `json:"type"`
	RCode     string        `json:"rcode"`
	Answers   []string      `json:"answers"`
	Verdict   audit.Verdict `json:"verdict"`
	Rule      string        `json:"rule"`
	Reason    string        `json:"reason,omitempty"`
	LatencyNS int64         `json:"latency_ns,omitempty"`
}

// Request is one HTTP request in a Connection.
type Request struct {
	Seq        uint64        `json:"seq"`
	Start      time.Time     `json:"start"`
	End        time.Time     `json:"end"`
	Method     audit.Text    `json:"method"`
	Path       audit.Text    `json:"path"`
	Status     int           `json:"status,omitempty"`
	Verdict    audit.Verdict `json:"verdict"`
	Rule       string        `json:"rule"`
	Reason     string        `json:"reason,omitempty"`
	Credential string        `json:"credential,omitempty"`
	LLM        string        `json:"llm,omitempty"`
	BytesOut   int64         `json:"bytes_out"`
	BytesIn    int64         `json:"bytes_in"`
}

// FileHistory is one path and all that happened there.
type FileHistory struct {
	Path     audit.Text   `json:"path"`
	Size     int64        `json:"size"`
	SHA256   string       `json:"sha256,omitempty"`
	Unhashed string       `json:"unhashed,omitempty"`
	Deleted  bool         `json:"deleted,omitempty"`
	MovedTo  audit.Text   `json:"moved_to,omitempty"`
	Written  bool         `json:"written"` // false: only read
	First    time.Time    `json:"first"`
	Last     time.Time    `json:"last"`
	Seq      uint64       `json:"seq"` // of the last change
	By       *Actor       `json:"by,omitempty"`
	Changes  []FileChange `json:"changes"`
}

// FileChange is one operation on a file.
type FileChange struct {
	Seq    uint64       `json:"seq"`
	Time   time.Time    `json:"time"`
	Op     audit.FileOp `json:"op"`
	Size   int64        `json:"size"`
	SHA256 string       `json:"sha256,omitempty"`
	From   audit.Text   `json:"from,omitempty"` // of a rename that led here
	By     *Actor       `json:"by,omitempty"`
}

// Call is a call of a model, with the commands that it asked for.
type Call struct {
	Seq   uint64     `json:"seq"`
	Start time.Time  `json:"start"`
	End   time.Time  `json:"end"`
	Step  string     `json:"step,omitempty"`
	LLM   audit.LLM  `json:"llm"`
	Execs []uint64   `json:"execs"`
	By    *Actor     `json:"by,omitempty"`
	Flow  uint64     `json:"flow_seq,omitempty"`
	Tools []ToolUsed `json:"tools"`
}

// ToolUsed is a tool's call and the commands that came of it.
type ToolUsed struct {
	Name  audit.Text `json:"name"`
	Execs []uint64   `json:"execs"`
}

// Credential is the life of one credential in one step.
type Credential struct {
	Step     string     `json:"step"`
	Name     string     `json:"name"` // empty: the step's own token at the broker
	Broker   string     `json:"broker,omitempty"`
	Via      string     `json:"via,omitempty"`
	Tag      string     `json:"tag,omitempty"`
	Accessor string     `json:"accessor_sha256,omitempty"`
	Seq      uint64     `json:"seq"` // of its first record
	Start    time.Time  `json:"start"`
	Expires  time.Time  `json:"expires,omitzero"` // as far as renewals went
	End      *time.Time `json:"end"`              // nil while it is alive
	EndSeq   uint64     `json:"end_seq,omitempty"`
	EndedBy  string     `json:"ended_by,omitempty"` // revoke, expire or the run's end
	// Bars are the lengths of time that the broker promised: one of 60 s at mint, one more at each renewal.
	Bars []Bar    `json:"bars"`
	Uses []Use    `json:"uses"`
	Seqs []uint64 `json:"seqs"` // of all its records
}

// Bar is one promise of a broker's.
type Bar struct {
	Seq  uint64    `json:"seq"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Use is a request into which the gateway put a credential.
type Use struct {
	Seq  uint64     `json:"seq"`
	Time time.Time  `json:"time"`
	Host audit.Text `json:"host,omitempty"`
	Flow string     `json:"flow,omitempty"`
}

// Finding is a recorded finding, or a disagreement between guest and host that the model found.
type Finding struct {
	Seq      uint64    `json:"seq"` // 0: it stands in no record, the model derived it
	Time     time.Time `json:"time"`
	Step     string    `json:"step,omitempty"`
	Rule     string    `json:"rule"`
	Detail   string    `json:"detail"`
	Evidence []uint64  `json:"evidence"` // seqs of the records that show it
	Secret   string    `json:"secret,omitempty"`
	Proc     string    `json:"proc,omitempty"`
	Action   string    `json:"action,omitempty"`
	Derived  bool      `json:"derived"`
}

// The rules of disagreements.
const (
	// RuleUnclaimed: a flow that the host saw and no process of the guest's claims.
	RuleUnclaimed = "flow-unclaimed"
	// RuleUnseen: a connect that a guest's process claims and the host never saw.
	RuleUnseen = "connect-unseen"
)

// Why is what one record rests on, and what came of it.
type Why struct {
	Seq     uint64        `json:"seq"`
	Verdict audit.Verdict `json:"verdict,omitempty"`
	Rule    string        `json:"rule,omitempty"`
	Reason  string        `json:"reason,omitempty"`
	// Text says it in a sentence, without any text of the guest's but what quotes hold.
	Text    string  `json:"text"`
	Policy  *Policy `json:"policy,omitempty"` // that was in force
	Causes  []Link  `json:"causes"`           // nearest first: LLM call, exec, DNS, flow, secret, ...
	Effects []Link  `json:"effects"`
}

// Policy is a generation of the policy.
type Policy struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
	Seq        uint64 `json:"seq"` // of the policy event
}

// Link is a record that stands in a relation to another.
type Link struct {
	Seq      uint64         `json:"seq"`
	Time     time.Time      `json:"time"`
	Kind     audit.Kind     `json:"kind"`
	Observer audit.Observer `json:"observer"`
	Relation string         `json:"relation"` // "asked for by", "run by", "child of", "rests on the answer", "carried by", "wrote", ...
	Label    audit.Text     `json:"label"`
	Claimed  bool           `json:"claimed,omitempty"` // the relation rests on what the guest says
}

// Changes is what happened between two instants.
type Changes struct {
	Run      string        `json:"run"`
	From     time.Time     `json:"from"`
	To       time.Time     `json:"to"`
	Events   uint64        `json:"events"`
	Started  []Proc        `json:"started"`
	Ended    []Proc        `json:"ended"`
	Files    []FileHistory `json:"files"` // with the changes in between only
	Opened   []Connection  `json:"opened"`
	Closed   []Connection  `json:"closed"`
	Denied   []Connection  `json:"denied"`
	Minted   []Credential  `json:"minted"`
	Over     []Credential  `json:"over"`
	Calls    []Call        `json:"calls"`
	Findings []Finding     `json:"findings"`
	Gaps     []audit.Gap   `json:"gaps"`
	Output   int64         `json:"output_bytes"`
}

// Lanes is a run over time, as much of it as a picture of so many columns can show.
// Instants are milliseconds since Began.
type Lanes struct {
	Run     string    `json:"run"`
	Began   time.Time `json:"began"`
	From    float64   `json:"from"`
	To      float64   `json:"to"`
	End     float64   `json:"end"`   // of the run, or of what is known of it
	Live    bool      `json:"live"`  // it goes on
	Total   uint64    `json:"total"` // records of the run
	Lanes   []Lane    `json:"lanes"` // always all of them: steps, exec, files, dns, flows, llm, secrets, output, findings
	Gaps    []Hole    `json:"gaps"`
	Freezes []Hole    `json:"freezes"`
}

// Lane is one row of the picture. Where there are more items than columns it has Buckets
// instead of those that are points; what lasts longer than a column stays an item.
type Lane struct {
	Name    string   `json:"name"`
	Total   uint64   `json:"total"` // in the window
	Items   []Item   `json:"items"`
	Buckets []Bucket `json:"buckets"`
}

// Item is something in a lane.
type Item struct {
	Seq      uint64         `json:"seq"`
	At       float64        `json:"at"`
	End      float64        `json:"end,omitempty"`   // 0: it is a point
	Open     bool           `json:"open,omitempty"`  // it had not ended at the end of what is known
	Until    float64        `json:"until,omitempty"` // secrets: when the broker's promise ends
	Label    audit.Text     `json:"label"`
	Kind     audit.Kind     `json:"kind"`
	Observer audit.Observer `json:"observer"`
	// Mood is what colour and shape say: ok, deny, revoke, fail, finding, claim or plain.
	Mood string `json:"mood"`
	Row  int    `json:"row"` // 0 and up: items of one row do not overlap
}

// Bucket is how much there was in one column.
type Bucket struct {
	At       float64 `json:"at"`
	Width    float64 `json:"width"`
	Count    uint64  `json:"count"`
	Denied   uint64  `json:"denied"`
	Findings uint64  `json:"findings"`
	Seq      uint64  `json:"seq"` // of the first
}

// Hole is a stretch of time of which less is known, or in which nothing could happen.
type Hole struct {
	Seq   uint64  `json:"seq"` // 0: nobody declared it
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	What  string  `json:"what"`
	Lost  uint64  `json:"lost"`
	Bytes int64   `json:"bytes"`
}
