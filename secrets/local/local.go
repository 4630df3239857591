// Package local reads secret values from this machine: from its environment, its files and its commands.
package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/custody-project/custody/redact"
)

const (
	// commandTime bounds the duration of a cmd: source.
	commandTime = 10 * time.Second
	// killTime is how long its pipes may stay open after it was killed.
	killTime = time.Second
	// maxRead is the maximum size of a value, plus a newline and one byte.
	maxRead = redact.MaxValue + 3
	// maxStderr bounds the part of a failed command's stderr in an error.
	maxStderr = 512
)

// Resolve returns the value of from: env:NAME, file:PATH or cmd:COMMAND. One newline at the end of files and commands'
// outputs is removed. A file must be a regular one that only its owner can read; a command runs under sh -c in dir, as
// the caller, for at most 10 s. Errors name the remedy and never contain a value.
func Resolve(ctx context.Context, from, dir string, as *Caller) ([]byte, error) {
	scheme, rest, _ := strings.Cut(from, ":")
	val, err := read(ctx, scheme, rest, dir, as)
	if err != nil {
		return nil, err
	}
	if err := fits(val); err != nil {
		return nil, fmt.Errorf("%s: source: %w", scheme, err)
	}
	return val, nil
}

func read(ctx context.Context, scheme, rest, dir string, as *Caller) ([]byte, error) {
	example := map[string]string{"env": "env:NAME", "file": "file:PATH", "cmd": "cmd:COMMAND"}[scheme]
	switch {
	case example == "": // it may be a misplaced value, so it is not repeated
		return nil, errors.New("unknown source of a secret: write env:NAME, file:PATH or cmd:COMMAND")
	case rest == "":
		return nil, fmt.Errorf("the source %q names nothing: write %s", scheme+":", example)
	case scheme == "env":
		return fromEnv(rest)
	case scheme == "file":
		return fromFile(rest, dir)
	}
	return fromCommand(ctx, rest, dir, as, commandTime)
}

// fits returns an error for values that cannot be masked in the record.
func fits(val []byte) error {
	switch n := len(val); {
	case n == 0:
		return errors.New("the value is empty")
	case n < redact.MinValue:
		return fmt.Errorf("the value has %d bytes; values under %d bytes also occur by chance: use a longer secret", n, redact.MinValue)
	case n > redact.MaxValue:
		return fmt.Errorf("the value has more than %d bytes, the most that can be masked in the record", redact.MaxValue)
	}
	return nil
}

func fromEnv(name string) ([]byte, error) {
	v, ok := os.LookupEnv(name)
	if !ok {
		return nil, fmt.Errorf("environment variable %q is %w: export it first", name, errNotSet)
	}
	return []byte(v), nil
}

// errNotSet is an fs.ErrNotExist of the environment.
var errNotSet error = notSet{}

type notSet struct{}

func (notSet) Error() string        { return "not set" }
func (notSet) Is(target error) bool { return target == fs.ErrNotExist }

func fromFile(path, dir string) ([]byte, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read secret: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("secret file %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("secret file %s has mode %04o and can be read by other users than its owner: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, fmt.Errorf("read secret: %w", err)
	}
	return trim(b), nil
}

func trim(b []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
}

func fromCommand(parent context.Context, command, dir string, as *Caller, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	stdout, stderr := head{most: maxRead, closes: true}, head{most: maxStderr}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// A separate process group, so that the processes of the shell end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	as.Become(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killTime
	err := cmd.Run()
	val := trim(stdout.kept)
	switch {
	case err == nil, len(stdout.kept) == maxRead: // a value that is too long is rejected later
		return val, nil
	case parent.Err() != nil:
		return nil, fmt.Errorf("the command of a cmd: source: %w", parent.Err())
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command of a cmd: source took more than %s and was killed", limit)
	}
	return nil, fmt.Errorf("the command of a cmd: source: %w%s", err, complaint(stderr.kept, val))
}

// complaint returns a failed command's stderr, in which its stdout is masked. If the stdout is too short to be found,
// complaint does not return the stderr.
func complaint(stderr, val []byte) string {
	text := strings.TrimSpace(string(stderr))
	if text == "" {
		return ""
	}
	r := redact.New(nil)
	for _, line := range bytes.Split(val, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if r.Add("value", line) != nil {
			return " (its stderr is not shown because it also wrote to stdout)"
		}
	}
	return ": " + r.Cut(text)
}

// head keeps the first bytes that are written to it. It drops further bytes, or returns an error if closes is set, which
// ends a command with endless output.
type head struct {
	kept   []byte // not a bytes.Buffer, whose ReadFrom would bypass Write
	most   int
	closes bool
}

func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.most-len(h.kept))
	h.kept = append(h.kept, p[:n]...)
	if h.closes && n < len(p) {
		return n, io.ErrShortWrite
	}
	return len(p), nil
}
