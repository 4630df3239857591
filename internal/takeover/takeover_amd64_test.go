package takeover

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDo: calls have the rights of the other process, which then goes on.
func TestDo(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	secret := t.TempDir() + "/secret"
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err = Do(cmd.Process.Pid, func(th *Thread) error {
		if uid, err := th.Call(unix.SYS_GETUID); err != nil || uid != 1 {
			t.Errorf("uid %d, %v", uid, err)
		}
		if _, err := th.Call(unix.SYS_OPENAT, unix.AT_FDCWD, secret, unix.O_RDONLY, 0); err != unix.EACCES {
			t.Errorf("a file of root: %v", err)
		}
		fd, err := th.Call(unix.SYS_OPENAT, unix.AT_FDCWD, "/dev/null", unix.O_RDONLY, 0)
		if err == nil {
			_, err = th.Call(unix.SYS_CLOSE, fd)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process ends with %v", err)
	}
}

// TestFilters: a call that a filter would end the process for is not made.
func TestFilters(t *testing.T) {
	f, err := newFilter([]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETUID, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 7, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_TRAP},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ERRNO | 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	th := &Thread{filters: []filter{f}}
	for _, c := range []struct {
		number uintptr
		arg    uintptr
		killed bool
	}{{unix.SYS_GETUID, 0, true}, {unix.SYS_GETGID, 7, true}, {unix.SYS_GETGID, 8, false}} {
		if got := th.killed(c.number, [6]uintptr{c.arg}); got != c.killed {
			t.Errorf("call %d with %d: %v", c.number, c.arg, got)
		}
	}
}
