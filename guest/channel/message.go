// Package channel is the only connection between the host and the guest: a
// multiplexed connection over a virtio-serial port or a virtio socket. The host end is Client,
// the guest end is Server. The host never trusts a byte that comes back.
package channel

import (
	"time"

	"github.com/custody-project/custody/audit"
)

// VsockPort is the port on which the guest of a machine with a virtio socket listens. Only privileged processes can listen on it.
const VsockPort = 1007

// Wake is the host's first message after a restore. It belongs to no run: a guest that is awake has no
// identity, and accepts only rehearsals until the host sends one.
type Wake struct {
	// Scratch is the size in bytes of the disk that was /dev/vdb when the guest said
	// READY, and which it has mounted: a restored guest must find it again, byte for byte.
	Scratch int64 `json:"scratch"`
}

// Identity makes a guest that is awake the sandbox of one run. The guest accepts one, and applies it
// before anything of the run executes, because a snapshot's clock, random
// state and identity are stale and shared by every sandbox restored from it.
type Identity struct {
	Run       string       `json:"run"`
	Time      time.Time    `json:"time"`
	Entropy   []byte       `json:"entropy"` // 64 bytes: for the guest's CRNG, and 8 for the sensor
	MachineID string       `json:"machine_id"`
	Hostname  string       `json:"hostname"`
	Limits    Limits       `json:"limits"`
	Files     FileSettings `json:"files"`
	// Trust is a PEM file of at most MaxTrust bytes: the certificate of one authority that the
	// cells trust in addition to those of the template (see TrustEnv). Empty: none.
	Trust []byte `json:"trust,omitempty"`
	// Sensor false leaves the sensors detached; only benchmarks set that.
	Sensor bool `json:"sensor"`
}

// Limits bound the total use of all cells inside the VM.
type Limits struct {
	PIDs   int   `json:"pids"`
	Memory int64 `json:"memory"` // bytes of the VM; the cells get it less a reserve for init
}

// FileSettings configure which file events are reported and hashed.
type FileSettings struct {
	// HashOver: files written and closed above this many bytes are hashed; 0 hashes all.
	HashOver int64 `json:"hash_over"`
	// ReadOver: reads of files above this many bytes are reported and hashed; negative means none.
	ReadOver int64 `json:"read_over"`
}

// Command is one step's command, to be run in a separate cell.
type Command struct {
	Step string   `json:"step"`
	Argv []string `json:"argv"` // Argv[0] is looked up in PATH of Env
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	TTY  *Winsize `json:"tty,omitempty"` // nil: three pipes
	// Session runs the command in the cell that all commands of the session share. It can run concurrently with others there, whose
	// processes it sees. What it leaves behind runs on, unless it has secrets.
	Session bool `json:"session,omitempty"`
	// User executes the command as a user of the guest's /etc/passwd: a name or number, with ":GROUP" or without; empty: root. Its
	// HOME, USER and LOGNAME are set unless Env has them.
	User string `json:"user,omitempty"`

	// Secrets are delivered to the step in its cell only. At most MaxSecrets
	// of at most MaxSecret bytes; Start does not use the values after it has returned.
	Secrets []Secret `json:"-"`
	// Leased reports that Prove will be called. Secrets imply it.
	Leased bool `json:"-"`
	// Refused is called with why something that the guest sent for the step's credentials was refused: a few times, then
	// the session ends, and once for each proof that came too late. It must neither block nor call the Process.
	Refused func(reason string) `json:"-"`
}

// Winsize is a terminal's size in characters.
type Winsize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Exit is how a command ended. Code is 128+Signal when a signal ended it, 127 when the
// command was not found, 126 when it could not be executed or its directory not be
// entered, and 125 when the guest itself failed; Error then reports why.
type Exit struct {
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"`
	// OOM is set when the cell's memory limit killed a process of the step.
	OOM bool `json:"oom,omitempty"`
}

// Sighting is an event from a sensor, with the guest's time in
// Guest.Time. The host stamps its own time and never takes Observer from here.
type Sighting = audit.Event
