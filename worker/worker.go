// Package worker runs one sandbox in a process without privileges, which parses everything that the guest and the network
// send: the channel to the guest, the monitor of its VM, DNS queries, and what the gateway proxies. It redacts and writes the run's log.
//
//	Run (root)                                             Main (worker: a uid of its own, no capabilities)
//	  fence.Namespace  <---- sockets, uplink ------------    fence.Fence, egress.Network
//	  Driver's Server  <---- start, end -----------------    the tier's Remote, sandbox.Run
//	  sealer.Signer    <---- sign a segment -------------    sealer.Remote, wal.Log, audit.Recorder
//	                                 privsep
//
// It does not support secrets, copies, terminals and changes of policy yet, and custody run does not use it yet.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/netpolicy/fence"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// Config describes a run to its worker.
type Config struct {
	Settings sandbox.Settings
	Facts    audit.Lifecycle // of the run's first event; their tier is the machine's
	Mode     wal.Mode
	Project  []byte // the project file, for its policy and resolvers
	Steps    []Step
	Time     time.Duration // limit of the run
	TagKey   []byte        // of the redactor
	Restored bool          // the machine is restored from a snapshot
	// Recover makes the worker close the record of one that ended before it did. Last is the manifest that was signed last.
	Recover bool
	Last    []byte
}

// Step is a command of the run.
type Step struct {
	Name string
	Argv []string
	Env  []string
	Dir  string
}

// Options are what the privileged process needs, in addition to the worker's configuration.
type Options struct {
	Config
	Driver  Driver
	Machine vmm.Machine // without its TAP
	Key     note.Signer
	Logs    string // directory in which the worker makes the run's log; the worker's uid owns both until it has ended
	// Stdout and Stderr receive the redacted output of the steps, Stderr also the worker's messages.
	Stdout, Stderr *os.File
	// Start starts the worker: a program that calls Main.
	Start func(ctx context.Context, w privsep.Worker, handlers map[string]privsep.Handler) (*privsep.Process, error)
}

// Result is how the run ended.
type Result struct {
	ExitCode int
	Status   audit.Status
	Error    string // why the run failed; empty if Status is done
}

const callEnded = "ended"

// workerMemory limits the worker's memory, in addition to what control groups of VMs allow their monitors.
const workerMemory = 256 << 20

// ErrWorkerDied means that the worker ended before the run did. Its record has been closed as interrupted, unless there is
// another error.
var ErrWorkerDied = errors.New("the worker ended before the run did")

// Run carries out the run in a worker, and returns when the worker has closed the record and ended. If the worker dies, or
// ctx is done, which ends the worker, the VM ends and another worker closes the record.
func Run(ctx context.Context, o Options) (Result, error) {
	facts := statement.Facts{
		Tenant: o.Facts.Tenant, PolicyDigest: o.Facts.PolicyDigest, RulesetDigest: o.Facts.RulesetDigest, TemplateDigest: o.Facts.TemplateDigest, Tier: o.Facts.Tier,
	}
	signer := sealer.NewSigner(o.Key, o.Settings.Run, facts)
	result, err := o.carryOut(ctx, signer)
	if errors.Is(err, ErrWorkerDied) {
		o.Recover, o.Last = true, signer.Last()
		closed, failed := o.wait(context.WithoutCancel(ctx), signer.Handlers())
		return closed, errors.Join(err, failed)
	}
	return result, err
}

// carryOut runs the sandbox.
func (o Options) carryOut(ctx context.Context, signer *sealer.Signer) (result Result, err error) {
	file, err := project.Parse(project.Name, o.Project)
	if err != nil {
		return result, err
	}
	policy, err := file.Policy()
	if err != nil {
		return result, err
	}
	namespace, err := fence.NewNamespace(ctx)
	if err != nil {
		return result, fmt.Errorf("the sandbox's network: %w", err)
	}
	defer func() { err = errors.Join(err, namespace.Close()) }()
	if rate := file.Limits.NetworkRate; rate > 0 {
		if err := namespace.Limit(rate); err != nil {
			return result, fmt.Errorf("the sandbox's network: %w", err)
		}
	}
	o.Machine.Tap, o.Machine.HashOver = namespace.Tap(), o.Settings.Files.HashOver
	o.Machine.DiskRate, o.Machine.NetworkRate = file.Limits.DiskRate, file.Limits.NetworkRate
	machine := o.Driver.NewServer(o.Machine)
	defer func() { err = errors.Join(err, machine.Close()) }()
	handlers := namespace.Handlers(func() *netpolicy.Policy { return policy })
	maps.Copy(handlers, machine.Handlers())
	maps.Copy(handlers, signer.Handlers())
	return o.wait(ctx, handlers)
}

// wait starts a worker that can make these calls, and waits for the run's end.
func (o Options) wait(ctx context.Context, handlers map[string]privsep.Handler) (result Result, err error) {
	ended := make(chan Result, 1)
	handlers[callEnded] = privsep.Handle(func(_ context.Context, r Result) (any, []*os.File, error) {
		select {
		case ended <- r:
			return struct{}{}, nil, nil
		default:
			return nil, nil, errors.New("the run ended before")
		}
	})
	config, err := configFile(o.Config)
	if err != nil {
		return result, err
	}
	defer config.Close()
	w := privsep.Worker{
		Files: []*os.File{config, o.Stdout, o.Stderr}, Stderr: o.Stderr, Memory: workerMemory,
		Binds:   append(trusted(), confine.Bind{Path: o.Logs, Name: logs, Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}),
		Prepare: o.giveLogs,
	}
	if o.Restored && !o.Recover {
		w.Files = append(w.Files, o.Machine.Image.State)
	}
	p, err := o.Start(ctx, w, handlers)
	if err != nil {
		return result, err
	}
	// The uid can belong to another process later, which must not own the log.
	defer func() { err = errors.Join(err, p.Close(), o.giveLogs(os.Geteuid())) }()
	select {
	case result = <-ended:
		return result, nil
	case <-p.Done():
		select {
		case result = <-ended: // it was reported just before
			return result, nil
		default:
			return result, ErrWorkerDied
		}
	case <-ctx.Done():
		return result, fmt.Errorf("%w: %w", ErrWorkerDied, context.Cause(ctx))
	}
}

// giveLogs makes a uid the owner of the directory of logs, and of the run's log if there is one.
func (o Options) giveLogs(uid int) error {
	if err := os.Chown(o.Logs, uid, uid); err != nil {
		return err
	}
	root, err := os.OpenRoot(o.Logs) // a worker that was taken over could have left links
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, uid, uid)
	})
}

// trusted returns the host's CA certificates, which the gateway needs.
func trusted() (binds []confine.Bind) {
	for _, path := range []string{"/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/etc/pki/tls"} {
		binds = append(binds, confine.Bind{Path: path, Flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, Optional: true})
	}
	return binds
}

// configFile returns a file in memory with the configuration.
func configFile(c Config) (*os.File, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
