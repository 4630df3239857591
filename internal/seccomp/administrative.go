package seccomp

import (
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// NewNamespaces are the flags of clone(2) and unshare(2) that make namespaces:
// with a user namespace come capabilities, and with them most of a kernel's surface.
const NewNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// Administrative returns the calls that no workload needs and that affect what a confined process must not:
// the kernel's code, its clock, mounts, other namespaces, keys of others, tracing, and interfaces that are mostly
// known for exploits.
func Administrative() []uint32 {
	return slices.Concat(archAdministrative, []uint32{
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_PROCESS_VM_WRITEV, // holds pages of a mapping that can be gone when it writes them
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
	})
}

// Refuse adds rules that refuse calls.
func (r Rules) Refuse(numbers ...uint32) {
	for _, nr := range numbers {
		r[nr] = []bpf.Instruction{Return(Perm)}
	}
}

// Confining returns rules that refuse a process what only an attacker in it would use: the administrative calls, access to other
// processes, other root directories and namespaces.
func Confining() Rules {
	rules := Rules{}
	rules.Refuse(Administrative()...)
	rules.Refuse(unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD, unix.SYS_CHROOT, unix.SYS_UNSHARE)
	return rules
}

// RefuseNamespaces adds rules that refuse to make a process in new namespaces.
func (r Rules) RefuseNamespaces() {
	r[unix.SYS_CLONE3] = []bpf.Instruction{Return(NoSys)} // its flags are in memory, which a filter cannot read
	r[unix.SYS_CLONE] = RefuseBits(0, NewNamespaces, Perm)
}

// LastCall is the last system call of Linux 6.1; filters answer to later ones like an older kernel.
const LastCall = 450
