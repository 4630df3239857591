package gvisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/custody-project/custody/vmm"
	"github.com/custody-project/custody/vmm/confine"
)

// channelFD is the descriptor of the channel in the container.
const channelFD = 3

// initCapabilities are those of custody-guest, which mounts, makes namespaces and sends signals; a step's
// processes have few of them (package cell). They hold in the sentry only: on the host the sentry has none.
var initCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT",
	"CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

// writeSpec writes the bundle's config.json.
func writeSpec(m vmm.Machine, ids *confine.Lease) error {
	first, size := ids.Range()
	mapping := []specs.LinuxIDMapping{{HostID: uint32(first), Size: uint32(size)}}
	memory, period := m.Memory, uint64(cpuPeriod)
	quota := int64(max(m.CPUs, 1)) * cpuPeriod
	caps := initCapabilities
	s := specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: rootDir},
		Process: &specs.Process{
			Args: []string{"/init", "container"}, Cwd: "/", Env: []string{"GOGC=off", "GOMEMLIMIT=48MiB"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 65536}},
		},
		Hostname: "localhost",
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			{Destination: "/cell", Type: "bind", Source: cellDir, Options: []string{"rw"}},
		},
		Linux: &specs.Linux{
			UIDMappings: mapping, GIDMappings: mapping,
			Namespaces: []specs.LinuxNamespace{{Type: specs.UserNamespace}, {Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.NetworkNamespace, Path: netFile}},
			Resources:  &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &memory}, CPU: &specs.LinuxCPU{Quota: &quota, Period: &period}},
		},
	}
	return writeJSON(filepath.Join(bundleDir, "config.json"), s)
}

// What the trace sink may wait for the host, in all some 10 seconds, before it drops a message. The workload waits with it.
const (
	sinkRetries    = 500
	sinkBackoff    = "25us"
	sinkBackoffMax = "20ms"
)

// contextFields are those of trace.Process that are no strings. gVisor does not send a message with a string that is not UTF-8, so
// that one of a process's name would make the process invisible.
var contextFields = []string{"time", "thread_id", "group_id", "thread_group_start_time", "parent_thread_group_id", "credentials"}

// withCwd has the working directory, too.
var withCwd = append(slices.Clone(contextFields), "cwd")

// points returns what the sentry reports from the start of the container on.
func points() []point {
	execve, execveat := uint(unix.SYS_EXECVE), uint(unix.SYS_EXECVEAT)
	list := []point{
		{Name: "sentry/execve", OptionalFields: []string{"binary_info"}, ContextFields: withCwd},
		{Name: "syscall/execve/enter"},
		{Name: "syscall/execveat/enter"},
		{Name: fmt.Sprintf("syscall/sysno/%d/exit", execve)},
		{Name: fmt.Sprintf("syscall/sysno/%d/exit", execveat)},
		{Name: "sentry/clone"},
		{Name: "sentry/task_exit"},
		{Name: "sentry/exit_notify_parent"},
		{Name: "syscall/openat/exit", OptionalFields: []string{"fd_path"}, ContextFields: withCwd},
		{Name: "syscall/socket/exit"},
		{Name: "syscall/connect/exit"},
	}
	if runtime.GOARCH == "amd64" { // later architectures have openat only
		list = append(list, point{Name: "syscall/open/exit", ContextFields: withCwd}, point{Name: "syscall/creat/exit", ContextFields: withCwd})
	}
	for i := range list {
		if list[i].ContextFields == nil {
			list[i].ContextFields = contextFields
		}
	}
	return list
}

type point struct {
	Name           string   `json:"name"`
	OptionalFields []string `json:"optional_fields,omitempty"`
	ContextFields  []string `json:"context_fields"`
}

// writeSession writes the configuration of the trace session, which runsc starts with the container.
func writeSession() error {
	sink := map[string]any{"name": "remote", "config": map[string]any{
		"endpoint": traceSock, "retries": sinkRetries, "backoff": sinkBackoff, "backoff_max": sinkBackoffMax,
	}}
	return writeJSON(initFile, map[string]any{"trace_session": map[string]any{"name": "Default", "points": points(), "sinks": []any{sink}}})
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}
