// Package project reads a project file, custody.yaml.
//
// The file is read strictly: an unknown key, a duplicate one, or a value of the
// wrong type or out of bounds is an *Error with file, line, column and
// remedy. Anchors, aliases, merge keys and tags are refused, because a policy
// should define each thing in one place. Package netpolicy defines the meaning of egress rules and
// checks them; this package adds the position in the file to its errors.
package project

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/state/lifecycle"
)

// Version is the only supported version of the file.
const Version = 1

// Name is the usual name of the file, in the project's directory.
const Name = "custody.yaml"

// File is a project file with defaults filled in.
type File struct {
	// SHA256 is the digest of the file's bytes, in hexadecimal; empty if no file was read.
	SHA256   string
	Version  int
	Project  string
	Template string
	// Isolation is the required tier of runs, one of vmm.Tiers; empty: the best that works on the host.
	Isolation string
	// Egress has the rules in the file's order, each in its normal form and with its position.
	Egress []netpolicy.Rule
	// Resolvers are upstream DNS servers, such as udp://10.0.0.53, tcp://10.0.0.53:53 or
	// tls://9.9.9.9#dns.quad9.net; none means those of the host.
	Resolvers []string
	Secrets   map[string]Secret
	// Env has the plain variables that all steps get, in the file's order.
	Env     []Variable
	Anomaly Action
	Record  Record
	Limits  Limits
	// Lifecycle is when sandboxes that programs have created are paused, archived and deleted.
	Lifecycle lifecycle.Policy
	Steps     []Step
}

// Secret defines the source of a value and how a step gets it.
type Secret struct {
	From    string // env:NAME, file:PATH, cmd:COMMAND, vault:PATH#FIELD, or vault:PATH for a token
	Deliver Deliver
	// Hosts are the only ones to which requests may carry the secret, if the gateway reads
	// them; none means all that the egress rules allow. A header secret is sent where rules name it.
	Hosts []netpolicy.Pattern
	// Line and Column are the position of its name in the project file, from 1.
	Line, Column int
}

// Deliver defines how a step gets a value. With Header, Env and File get a
// placeholder; Token excludes the others. Without any the value is only masked.
type Deliver struct {
	Header string // added to requests by the gateway, never visible in the sandbox
	Env    string // name of an environment variable
	File   string // name of a file in the step's tmpfs
	Token  string // name of an environment variable for a separate Vault token of the step
}

// Action is the reaction to a credential in a wrong place.
type Action string

// The actions on a finding.
const (
	Revoke Action = "revoke" // the step's credentials are revoked; the default
	Freeze Action = "freeze" // also, the sandbox is frozen for inspection
	End    Action = "end"    // also, the run is ended
)

// Mode describes what happens when the record cannot be written.
type Mode string

// The modes of the record.
const (
	Strict  Mode = "strict"  // the sandbox is frozen until the record can be written; the default
	Degrade Mode = "degrade" // the run continues and a gap declares the loss
)

// Record configures what is recorded.
type Record struct {
	Mode   Mode
	Files  Files
	Output int64 // maximum of recorded output of a run, in bytes
}

// Files has file sizes in bytes above which files are hashed or reads reported.
type Files struct {
	HashOver int64 // written files are hashed above it; 0 hashes all but empty ones
	ReadOver int64 // reads are reported and hashed above it; -1 never
}

// Limits bound one sandbox.
type Limits struct {
	CPUs   int
	Memory int64 // bytes
	Disk   int64 // bytes of the scratch disk
	PIDs   int
	Time   time.Duration // of the whole run
	// Silence is how long the guest may give no sign of life, before the run is ended.
	Silence time.Duration
	// Idle is how long a sandbox that a program has created may do nothing, before it is ended; 0 leaves it to the program.
	Idle time.Duration
	// DiskRate is the maximum number of bytes per second that are read from and written to each disk; 0 is no limit.
	DiskRate int64
	// NetworkRate is the maximum number of bytes per second that the sandbox receives, and sends; 0 is no limit.
	NetworkRate int64
	// LLMTokens is the maximum number of tokens, in and out, of the run's LLM API calls; 0 is no limit.
	LLMTokens int64
}

// Step is one command of a run.
type Step struct {
	Name    string
	Run     string        // executed with sh -c
	Secrets []string      // names in File.Secrets
	Env     []Variable    // in addition to File.Env, which they override
	Time    time.Duration // of the step; 0: limits.time alone bounds it
	Workdir string        // in the sandbox; empty for its default
}

// Default returns the defaults.
func Default() File {
	return File{
		Version:  Version,
		Project:  "default",
		Template: "base",
		Anomaly:  Revoke,
		Record: Record{
			Mode:   Strict,
			Files:  Files{HashOver: 0, ReadOver: 8 << 20},
			Output: 64 << 20,
		},
		Limits:    Limits{CPUs: 1, Memory: 512 << 20, Disk: 2 << 30, PIDs: 256, Time: 15 * time.Minute, Silence: 30 * time.Second},
		Lifecycle: lifecycle.Default(),
	}
}

// maxFile is far more than people can review.
const maxFile = 256 << 10

// Load reads the file at path. If it does not exist, errors.Is(err, fs.ErrNotExist) holds.
func Load(ctx context.Context, path string) (File, error) {
	b, err := ReadFile(ctx, path)
	if err != nil {
		return File{}, err
	}
	return Parse(path, b)
}

// ReadFile reads the bytes of the file at path, for Parse or Narrow.
func ReadFile(ctx context.Context, path string) ([]byte, error) {
	b, err := regular.Given(ctx, path, 64*maxFile)
	if err != nil {
		return nil, fmt.Errorf("project file: %w", err)
	}
	return b, nil
}

// Policy returns the policy of the egress rules. For a parsed file it returns no error.
func (f *File) Policy() (*netpolicy.Policy, error) { return netpolicy.New(f.Egress) }

// Parse parses a file's contents; errors contain name.
func Parse(name string, b []byte) (File, error) {
	d := &decoder{reader: &reader{file: name}}
	return d.decode(b, Default())
}

// decode parses a file whose keys replace the values in f.
func (d *decoder) decode(b []byte, f File) (File, error) {
	body, err := d.document(b)
	if err != nil {
		return File{}, err
	}
	f.SHA256 = fmt.Sprintf("%x", sha256.Sum256(b))
	if err := d.top(&f, body); err != nil {
		return File{}, err
	}
	for _, check := range d.later {
		if err := check(&f); err != nil {
			return File{}, err
		}
	}
	if _, err := f.Policy(); err != nil {
		return File{}, ruleError(d.file, err)
	}
	if err := d.checkEnv(&f); err != nil {
		return File{}, err
	}
	return f, nil
}
