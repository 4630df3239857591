// Package sensor observes what the steps inside the VM do: every exec and
// exit, files created, written, read, renamed and deleted, changes of the root
// directory, and attempts to connect. It is a set of eBPF programs, a fanotify group that keeps hold of
// closed files until they are hashed, and the code that turns their records
// into audit events.
//
// # What init must provide
//
//   - to run as root in the initial user, pid and cgroup namespaces (PID 1 does);
//   - /proc and /sys mounted before Load: programs are fitted to the kernel with
//     /sys/kernel/btf/vmlinux, fallbacks read /proc/PID/root and /proc/PID/cmdline;
//   - a mounted cgroup v2 hierarchy in which each step has a cgroup of its own,
//     made before Track. The id that Track takes is the inode number of the
//     cgroup's directory. A process is watched from its first fork or exec inside
//     that cgroup, and stays watched, like all its descendants, wherever it moves;
//   - each cell's root on top of its mount namespace: by pivot_root, or from an
//     initramfs, where that is not possible, by mount(".", "/", MS_MOVE) and chroot;
//   - to load modules (overlay) before Load is not needed: programs use no module's BTF;
//   - RLIMIT_NOFILE of at least 1024 for itself.
//
// Not needed: bpffs, tracefs, debugfs, securityfs, a memory lock limit, an lsm=
// argument (programs are attached to the security hooks' functions, not as LSM).
// The kernel needs BPF trampolines (amd64 since 5.5, arm64 since 6.4), bpf_loop
// (5.17), SECURITY_PATH and FANOTIFY, and must not run with preempt=full: a program
// that is preempted by itself is skipped (such misses are counted as lost).
//
// A process that never calls execve has a Proc of its own in file and flow
// events; their Parent names the nearest ancestor that had an exec. There are
// no fork events. Exec.Parent, too, is the nearest ancestor with an exec, taken
// when the process was forked, so that every Parent can be found in the record.
package sensor
