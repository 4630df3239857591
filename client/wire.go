package client

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// SandboxRequest describes a sandbox to create, in the tenant of the token.
type SandboxRequest struct {
	Project   string            `json:"project"`   // a registered project; empty: none, with the defaults
	Policy    string            `json:"policy"`    // a project file that narrows the project
	Template  string            `json:"template"`  // empty: the project's
	Isolation string            `json:"isolation"` // empty: the best tier that works
	Metadata  map[string]string `json:"metadata"`
	// IdleSeconds is how long it lives without calls, while its processes do nothing; 0: 5 minutes. TimeSeconds is how long it lives at most; 0: as long as
	// the project allows.
	IdleSeconds int64  `json:"idle_seconds"`
	TimeSeconds int64  `json:"time_seconds"`
	Session     string `json:"session"` // while a sandbox has this key, it is returned
	Lazy        bool   `json:"lazy"`    // it starts when it is first used
}

// Sandbox describes a sandbox at one time.
type Sandbox struct {
	ID          string            `json:"id"` // of its first run, too
	Created     time.Time         `json:"created"`
	Expires     time.Time         `json:"expires"`
	Latest      time.Time         `json:"latest"`               // to which it can be extended
	IdleUntil   *time.Time        `json:"idle_until,omitempty"` // when it ends unless it is called, or its processes compute; nil during a call, or while it waits
	State       string            `json:"state"`                // promised, queued, starting, live, pausing, paused, archived, ending or ended
	Position    int               `json:"position,omitempty"`   // among the tenant's starts that wait
	Queued      *time.Time        `json:"queued,omitempty"`     // since when it waits
	Quota       string            `json:"quota,omitempty"`      // that is used up, for which it waits
	Expected    *time.Time        `json:"expected,omitempty"`   // when it can start, an estimate; only while it waits
	Project     string            `json:"project"`
	Template    string            `json:"template"`
	Tier        string            `json:"tier,omitempty"` // of isolation; empty until it is live
	Caller      string            `json:"caller"`
	Session     string            `json:"session,omitempty"` // empty for roles below operator: with it a sandbox can be used
	Metadata    map[string]string `json:"metadata"`
	CPUs        int               `json:"cpus"`
	MemoryBytes int64             `json:"memory_bytes"`
	Running     int               `json:"running"`                // processes
	Runs        []string          `json:"runs"`                   // IDs, the latest last: each resume begins another one
	Paused      *time.Time        `json:"paused,omitempty"`       // when its state was stored; nil: it has no stored state
	StoredBytes int64             `json:"stored_bytes,omitempty"` // of that state
	FilesOnly   string            `json:"files_only,omitempty"`   // why that state has only its files, and its processes ended; empty: they continue
	Error       string            `json:"error,omitempty"`        // why it ended by itself
}

// ForkRequest asks for sandboxes that continue from the state of another one.
type ForkRequest struct {
	Count    int               `json:"count"`
	Metadata map[string]string `json:"metadata,omitempty"` // nil: that of the sandbox
}

// ExtendRequest sets how long a sandbox lives from now on.
type ExtendRequest struct {
	Seconds int64 `json:"seconds"`
}

// ProcessRequest describes a process to start: argv, or a script for the sandbox's shell.
type ProcessRequest struct {
	Argv    []string          `json:"argv"`
	Shell   string            `json:"shell"`
	Env     map[string]string `json:"env"`
	Cwd     string            `json:"cwd"`  // empty: /workspace
	User    string            `json:"user"` // of the sandbox; empty: root
	Secrets []string          `json:"secrets"`
	// TimeSeconds limits its time; 0: only the sandbox's.
	TimeSeconds int64          `json:"time_seconds"`
	Stdin       bool           `json:"stdin"` // input can be sent; else it has none
	Terminal    *TerminalState `json:"terminal"`
}

// TerminalState is a terminal with its size in characters.
type TerminalState struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
	Type string `json:"type,omitempty"` // for TERM
}

// SignalRequest is a signal by its name, such as SIGTERM.
type SignalRequest struct {
	Signal string `json:"signal"`
}

// StartedProcess describes a process of a sandbox at one time.
type StartedProcess struct {
	Name     string         `json:"name"` // of its step in the record
	Argv     []string       `json:"argv"`
	Cwd      string         `json:"cwd"`
	User     string         `json:"user"`
	Terminal *TerminalState `json:"terminal,omitempty"`
	Started  time.Time      `json:"started"`
	Ended    *time.Time     `json:"ended"`     // null while it runs
	ExitCode *int           `json:"exit_code"` // null while it runs, or if Custody ended it
	Signal   string         `json:"signal,omitempty"`
	OOM      bool           `json:"oom,omitempty"`
	Error    string         `json:"error,omitempty"`
}

// FileInfo describes a file of a sandbox.
type FileInfo struct {
	Name     audit.Text `json:"name"` // without directories
	Type     string     `json:"type"` // file, directory, symlink, fifo, socket or device
	Size     int64      `json:"size"`
	Mode     string     `json:"mode"` // permissions in octal, such as 0644
	Modified time.Time  `json:"modified"`
	UID      uint32     `json:"uid"`
	GID      uint32     `json:"gid"`
	Target   audit.Text `json:"target,omitempty"` // of a symbolic link
}

// FileList is entries of a directory.
type FileList struct {
	Files []FileInfo `json:"files"`
	Next  audit.Text `json:"next,omitempty"` // the name after which there are more
}

// DirectoryChange is a change in a directory that is watched.
type DirectoryChange struct {
	Seq       uint64     `json:"seq"`                 // counts from 1 in each answer
	Op        string     `json:"op"`                  // ready, create, write, remove, move or lost
	Path      audit.Text `json:"path,omitempty"`      // relative to the directory; "." is the directory itself
	To        audit.Text `json:"to,omitempty"`        // move: the new path
	Directory bool       `json:"directory,omitempty"` // what it is about is one
}

// NotLive is the type of the Problem of a request that has waited long for a sandbox to become live. Nothing was done: the request can be repeated.
const NotLive = "not-live"

// Pending is the type of the Problem of a request whose work takes longer than an answer may. The work continues: the request can be repeated, and waits for it.
const Pending = "pending"

// tooMany is the type of the Problem of a request that was not carried out because the client has made too many.
const tooMany = "rate"

// problemType begins the types of problems.
const problemType = "urn:custody:problem:"

// Problem is why the service refused a request (RFC 9457).
type Problem struct {
	Type   string `json:"type"` // urn:custody:problem:NAME
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Hint   string `json:"hint"` // what to do
	// After is how long to wait before another attempt; 0: the service names no time.
	After time.Duration `json:"-"`
}

// Error implements error.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if p.Hint != "" {
		text += ": " + p.Hint
	}
	return text
}
