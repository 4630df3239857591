package fence

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/bootid"
)

// MinimumKernel is the oldest Linux release on which fences are tested.
const MinimumKernel = "6.1"

// KernelError reports that the host's kernel rejects an operation that a fence needs: loading a program, attaching it,
// or writing an nftables table.
type KernelError struct {
	Release string // of the kernel
	Log     string // the verifier's; empty if the verifier did not reject anything

	text string // the text of err, with the verifier's reason
	err  error
}

// Error returns the operation and the kernel's reason, in one line.
func (e *KernelError) Error() string {
	return fmt.Sprintf("Linux %s cannot enforce a policy (%s or newer can): %s", e.Release, MinimumKernel, strings.ReplaceAll(e.text, "\n", "; "))
}

// Unwrap returns the kernel's error.
func (e *KernelError) Unwrap() error { return e.err }

// Hint returns how to fix the problem.
func (e *KernelError) Hint() string {
	switch {
	case older(e.Release):
		// An old kernel's reason is misleading: it can be a permission that root lacks.
	case e.Log == "" && (errors.Is(e.err, unix.EPERM) || errors.Is(e.err, unix.EACCES)):
		return "run as root; a sandbox's network needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON"
	case confidential():
		return "the kernel is locked down for confidentiality and does not let programs read its memory: boot it with lockdown=integrity"
	}
	return "use a host with Linux " + MinimumKernel + " or newer and BTF (CONFIG_DEBUG_INFO_BTF), such as Debian 12; docs/hosts.md lists what was tested"
}

// older reports whether a release is older than MinimumKernel.
func older(release string) bool {
	var major, minor, leastMajor, leastMinor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	fmt.Sscanf(MinimumKernel, "%d.%d", &leastMajor, &leastMinor)
	return major < leastMajor || major == leastMajor && minor < leastMinor
}

// confidential reports whether the kernel is in the stricter mode of lockdown (kernel_lockdown(7)), which disables
// bpf_probe_read_kernel.
func confidential() bool {
	mode, err := os.ReadFile("/sys/kernel/security/lockdown")
	return err == nil && strings.Contains(string(mode), "[confidentiality]")
}

// refused wraps the kernel's error in a KernelError. It returns nil for nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	e := &KernelError{Release: bootid.Kernel(), text: err.Error(), err: err}
	if v := new(ebpf.VerifierError); errors.As(err, &v) {
		e.Log = fmt.Sprintf("%+v\n", v)
		e.text = strings.Replace(e.text, v.Error(), v.Cause.Error()+reason(v.Log), 1)
	}
	return e
}

// reason returns the end of the verifier's log: the last instruction and its error. Since Linux 7.x an explanation of
// many lines follows, from "Verification failed:" on.
func reason(log []string) string {
	var lines []string
	for _, line := range log {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "Verification failed:") || strings.HasPrefix(line, "processed ") {
			break
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	text := ""
	for _, line := range lines[max(0, len(lines)-2):] {
		text += ": " + line
	}
	return text
}
