#!/bin/sh
# Attempts to get out of a cell, or to hurt init and the sensors. Each prints
# one line, "ok NAME" when it was refused and "ESCAPED NAME" when it was not;
# things that must work print "ok NAME" or "BROKEN NAME". Needs python3.
# The exit status is the number of bad lines, at most 100.

bad=0
ok() { echo "ok $1"; }
fail() { echo "$2 $1"; bad=$((bad + 1)); }

# refused NAME COMMAND...: the command must fail.
refused() {
	name=$1
	shift
	if "$@" >/dev/null 2>&1 </dev/null; then fail "$name" ESCAPED; else ok "$name"; fi
}

# works NAME COMMAND...: the command must succeed.
works() {
	name=$1
	shift
	if "$@" >/dev/null 2>&1 </dev/null; then ok "$name"; else fail "$name" BROKEN; fi
}

# absent NAME PATTERN...: no such file.
absent() {
	name=$1
	shift
	for f in "$@"; do
		if [ -e "$f" ]; then
			fail "$name" ESCAPED
			return
		fi
	done
	ok "$name"
}

# syscall NAME NUMBER ARGS: the call must fail, and not for want of a better argument.
syscall() {
	name=$1
	shift
	if python3 - "$@" <<'PY'; then ok "$name"; else fail "$name" ESCAPED; fi
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
args = [ctypes.c_long(int(a, 0)) for a in sys.argv[1:]]
r = libc.syscall(*args)
sys.exit(0 if r == -1 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAFNOSUPPORT) else 1)
PY
}

cd /tmp || exit 100

# Devices and file systems of the VM.
absent no-vm-devices /dev/vport* /dev/vda /dev/vdb /dev/mem /dev/kmsg /dev/port /dev/hwrng /dev/kvm /dev/console
refused mknod-disk mknod /tmp/vdb b 254 16
refused mknod-mem mknod /tmp/mem c 1 1
refused dev-null-removed rm -f /dev/null
refused dev-file-made touch /dev/x
refused sys-written sh -c 'echo 1 > /sys/kernel/profiling'
absent no-cgroup-fs /sys/fs/cgroup/cgroup.procs
absent no-tracefs /sys/kernel/tracing/trace /sys/kernel/debug/tracing
absent no-securityfs /sys/kernel/security/lsm
absent no-bpffs /sys/fs/bpf/*
refused core-pattern sh -c 'echo "|/tmp/x" > /proc/sys/kernel/core_pattern'
refused modprobe-path sh -c 'echo /tmp/x > /proc/sys/kernel/modprobe'
refused sysrq sh -c 'echo b > /proc/sysrq-trigger'
refused kcore dd if=/proc/kcore bs=1 count=1
refused kmsg dd if=/proc/kmsg bs=1 count=1
refused kallsyms-addresses sh -c 'grep -v "^0000000000000000" /proc/kallsyms | grep -q .'
refused remount mount -o remount,rw /proc
refused mount-proc mount -t proc proc /mnt
refused mount-tmpfs mount -t tmpfs tmpfs /mnt
refused mount-bind mount --bind /tmp /mnt
refused mount-cgroup mount -t cgroup2 none /mnt
refused umount-proc umount -l /proc
refused umount-dev umount -l /dev

# Init, its memory and its root.
refused see-init sh -c 'cat /proc/[0-9]*/comm | grep -qx init'
refused first-root ls /proc/1/root/lower
refused first-mem dd if=/proc/1/mem bs=1 count=1
refused first-maps sh -c 'grep -q . /proc/1/maps'
refused first-killed sh -c 'kill -9 1; sleep 0.2; ! [ -d /proc/1 ]'
works others-seen sh -c '[ "$(ls -d /proc/[0-9]* | wc -l)" -lt 10 ]'
refused chroot-breakout python3 -c '
import os
os.makedirs("/tmp/jail", exist_ok=True)
up = os.open("/", os.O_RDONLY)
os.chroot("/tmp/jail")
os.fchdir(up)
for _ in range(64): os.chdir("..")
os.chroot(".")
raise SystemExit(0 if os.path.exists("/lower") or os.path.exists("/cell") or os.path.exists("/modules") else 1)'
refused inherited-descriptors sh -c 'ls /proc/self/fd | grep -qv "^[0-3]$"'
refused inherited-environment sh -c 'tr "\0" "\n" < /proc/1/environ | grep -q .'
refused setns-init python3 -c '
import ctypes, os
libc = ctypes.CDLL(None)
raise SystemExit(0 if libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0 else 1)'
refused ptrace-first python3 -c '
import ctypes
raise SystemExit(0 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 1)'
refused oom-immunity sh -c 'echo -1000 > /proc/self/oom_score_adj'
refused nice-below-zero nice -n -5 sh -c '[ "$(nice)" -lt 0 ]'
refused real-time chrt -f 50 true
refused rlimit-raised sh -c 'ulimit -Hn 1000000'

# Capabilities that must be gone, whatever is executed.
refused capability-beyond python3 -c '
kept = sum(1 << c for c in (0, 1, 3, 4, 5, 6, 7, 10, 18, 29, 31))
sets = {l.split()[0]: int(l.split()[1], 16) for l in open("/proc/self/status") if l.startswith("Cap")}
raise SystemExit(0 if any(v & ~kept for v in sets.values()) else 1)'
refused no-new-privs-off sh -c 'grep -q "^NoNewPrivs:.0" /proc/self/status'
refused seccomp-off sh -c 'grep -q "^Seccomp:.0" /proc/self/status'
refused clock-set date -s 2001-01-01
refused hostname-set hostname elsewhere
refused userns unshare -U true
refused mountns unshare -m true
refused netns unshare -n true
refused raw-socket python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'
refused packet-socket python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'
refused vsock python3 -c 'import socket; socket.socket(40, socket.SOCK_STREAM)'
refused kernel-crypto-socket python3 -c 'import socket; socket.socket(38, socket.SOCK_SEQPACKET)'
refused audit-netlink python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9)'
refused process-events-netlink python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 11)'
refused interface-added ip link add x type dummy

# System calls, by number (x86-64).
if [ "$(uname -m)" = x86_64 ]; then
	syscall bpf 321 0 0 0
	syscall perf_event_open 298 0 0 -1 -1 0
	syscall init_module 175 0 0 0
	syscall finit_module 313 0 0 0
	syscall delete_module 176 0 0
	syscall kexec_load 246 0 0 0 0
	syscall mount 165 0 0 0 0 0
	syscall umount2 166 0 0
	syscall pivot_root 155 0 0
	syscall fsopen 430 0 0
	syscall open_tree 428 -100 0 1
	syscall move_mount 429 0 0 0 0 0
	syscall mount_setattr 442 0 0 0 0 0
	syscall setns 308 0 0
	syscall unshare-user 272 0x10000000
	syscall unshare-mount 272 0x20000
	syscall clone-user 56 0x10000011 0 0 0 0
	syscall clone-pid 56 0x20000011 0 0 0 0
	syscall clone3 435 0 0
	syscall keyctl 250 0 0
	syscall add_key 248 0 0 0 0 0
	syscall open_by_handle_at 304 0 0 0
	syscall io_uring_setup 425 1 0
	syscall userfaultfd 323 0
	syscall fanotify_init 300 0 0
	syscall swapon 167 0 0
	syscall reboot 169 0xfee1dead 672274793 0x1234567
	syscall iopl 172 3
	syscall ioperm 173 0 1 1
	syscall modify_ldt 154 0 0 0
	syscall quotactl 179 0 0 0 0
	syscall acct 163 0
	syscall syslog 103 3 0 0
	syscall vhangup 153
	syscall settimeofday 164 0 0
	syscall clock_settime 227 0 0
	syscall adjtimex 159 0
	syscall sethostname 170 0 0
	syscall x32-getpid 0x40000027
	syscall x32-bpf 0x40000141 0 0 0
	syscall beyond-the-last 500
	# A 32-bit call (int 0x80, getpid) must end the process.
	refused int80 python3 -c '
import ctypes, mmap
m = mmap.mmap(-1, 4096, prot=7)
m.write(bytes([0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3]))
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
raise SystemExit(0 if f() > 0 else 1)'
fi

# What an agent needs must still work.
works root sh -c '[ "$(id -u)" = 0 ]'
works first-process sh -c '[ -r /proc/1/comm ]'
works change-user setpriv --reuid 65534 --regid 65534 --clear-groups true
works change-user-su su nobody -s /bin/sh -c true
works chown-file sh -c 'touch /tmp/f && chown nobody /tmp/f && rm /tmp/f'
works rename-across sh -c 'mkdir -p /tmp/a /tmp/b && touch /tmp/a/f && mv /tmp/a/f /tmp/b/f && rm -r /tmp/a /tmp/b'
works link-across sh -c 'touch /tmp/l && ln /tmp/l /root/l && rm /tmp/l /root/l'
works rename-system sh -c 'mv /usr/share/doc /usr/share/doc2 && mv /usr/share/doc2 /usr/share/doc'
works write-root sh -c 'mkdir /data && rmdir /data'
works fifo sh -c 'mkfifo /tmp/fifo && rm /tmp/fifo'
works threads python3 -c 'import threading; t = [threading.Thread(target=print) for _ in range(8)]; [x.start() for x in t]; [x.join() for x in t]'
works processes python3 -c 'import subprocess; subprocess.run(["true"], check=True)'
works shared-memory python3 -c 'from multiprocessing import Lock; Lock()'
works terminals python3 -c 'import pty; pty.openpty()'
works dev-null sh -c 'echo x > /dev/null'
works dev-fd sh -c 'echo x > /dev/stderr; [ "$(cat /dev/fd/3 3</etc/hostname)" = "$(hostname)" ]'
works random sh -c '[ "$(head -c 16 /dev/urandom | wc -c)" = 16 ]'
works loopback python3 -c '
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())'
works interfaces python3 -c 'import socket; socket.getaddrinfo("localhost", 80); socket.if_nameindex()'
works low-port python3 -c 'import socket; socket.create_server(("127.0.0.1", 80))'
works signals sh -c 'sleep 100 & kill -TERM $!; wait $!; [ $? = 143 ]'
works trace-own python3 -c '
import ctypes, os, signal
pid = os.fork()
if pid == 0:
    signal.pause()
libc = ctypes.CDLL(None)
r = libc.ptrace(16, pid, 0, 0)
os.kill(pid, 9)
raise SystemExit(r)'
works workspace sh -c '[ -d /workspace ] && touch /workspace/.probe && rm /workspace/.probe'
works orphans-reaped sh -c '(sh -c "true &" &); sleep 0.2; ! grep -l "^State:.Z" /proc/[0-9]*/status'

[ "$bad" -le 100 ] || bad=100
exit "$bad"
