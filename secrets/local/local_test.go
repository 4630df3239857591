package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/custody-project/custody/redact"
)

const secret = "hunter2-hunter2"

func write(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

func TestResolve(t *testing.T) {
	t.Setenv("CUSTODY_TEST_SECRET", secret)
	plain := write(t, "plain", secret, 0o600)
	line := write(t, "line", secret+"\n", 0o400)
	crlf := write(t, "crlf", secret+"\r\n", 0o600)
	two := write(t, "two", secret+"\n\n", 0o600)
	long := strings.Repeat("x", redact.MaxValue)
	full := write(t, "full", long+"\r\n", 0o600)
	cases := []struct{ from, dir, want string }{
		{"env:CUSTODY_TEST_SECRET", "", secret},
		{"file:" + plain, "", secret},
		{"file:" + line, "/", secret},
		{"file:line", filepath.Dir(line), secret},
		{"file:" + crlf, "", secret},
		{"file:" + two, "", secret + "\n"},
		{"file:" + full, "", long},
		{"cmd:cat plain", filepath.Dir(plain), secret},
		{"cmd:echo $CUSTODY_TEST_SECRET; echo warning >&2", "", secret},
		{"cmd:printf 'a:b:%s' " + secret, "", "a:b:" + secret},
		{"cmd:cat; echo " + secret, "", secret}, // stdin is empty
	}
	for _, c := range cases {
		got, err := Resolve(t.Context(), c.from, c.dir, nil)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %.40q, %v", c.from, got, err)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Setenv("CUSTODY_TEST_SHORT", "h2hunt7")
	t.Setenv("CUSTODY_TEST_EMPTY", "")
	open := write(t, "open", secret, 0o640)
	short := write(t, "short", "h2hunt7\n", 0o600)
	huge := write(t, "huge", strings.Repeat("x", redact.MaxValue+1), 0o600)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ from, want string }{
		{secret, "write env:NAME"},
		{"", "write env:NAME"},
		{"https://user:" + secret + "@host", "write env:NAME"},
		{"env:", "names nothing: write env:NAME"},
		{"env:CUSTODY_TEST_NONE", `"CUSTODY_TEST_NONE" is not set`},
		{"env:CUSTODY_TEST_EMPTY", "empty"},
		{"env:CUSTODY_TEST_SHORT", "7 bytes; values under 8"},
		{"file:" + short, "7 bytes; values under 8"},
		{"file:" + open, "mode 0640"},
		{"file:" + open, "chmod 600 " + open},
		{"file:" + huge, "more than"},
		{"file:" + fifo, "not a regular file"},
		{"file:/", "not a regular file"},
		{"file:/dev/zero", "not a regular file"},
		{"file:/nonexistent", "no such file"},
		{"cmd:echo short", "5 bytes; values under 8"},
		{"cmd:true", "empty"},
		{"cmd:exit 3", "exit status 3"},
		{"cmd:echo no such vault >&2; exit 3", "exit status 3: no such vault"},
		{"cmd:echo " + secret + "; echo bad " + secret + " >&2; exit 3", "exit status 3: bad [REDACTED:value:"},
		{"cmd:echo " + secret + "; echo " + secret + " | base64 >&2; exit 3", "exit status 3: [REDACTED:value:"},
		{"cmd:echo h2hunt7; echo bad h2hunt7 >&2; exit 3", "stderr is not shown"},
		{"cmd:yes " + secret, "more than"},
		{"cmd:kill -9 $$", "killed"},
		{"vault:secret/data/x#key", "unknown source"},
	}
	for _, c := range cases {
		got, err := Resolve(t.Context(), c.from, "", nil)
		if err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %q, error %v, want one with %q", c.from, got, err, c.want)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "h2hunt7") || strings.Contains(err.Error(), "aHVudGVy") {
			t.Errorf("%q: the error reveals the value: %v", c.from, err)
		}
	}
}

// A command that takes too long is killed with all its processes.
func TestSlowCommand(t *testing.T) {
	pidfile := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf("sleep 60 & echo $! > %s; wait", pidfile)
	_, err := fromCommand(t.Context(), script, "", nil, 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "took more than 300ms and was killed") {
		t.Errorf("error %v", err)
	}
	gone(t, pidfile)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := Resolve(ctx, "cmd:"+script, "", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the caller's deadline: %v", err)
	}
	gone(t, pidfile)
}

// gone waits until the process in pidfile has ended.
func gone(t *testing.T, pidfile string) {
	t.Helper()
	b, err := os.ReadFile(pidfile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for range 500 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still exists", pid)
}
