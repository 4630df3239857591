package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outputBytes is how much of a hook's output an error quotes.
const outputBytes = 1000

// run starts the command with the message on its standard input, and returns when it and the processes of its group
// have ended: at most 2 s after its time limit.
func (h Hook) run(ctx context.Context, m Message) error {
	limit, err := h.limit()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("killed after %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Argv[0], h.Argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
		"CUSTODY_EVENT=" + m.Type, "CUSTODY_RUN=" + m.Run}
	cmd.Stdin = bytes.NewReader(append(m.body("json"), '\n'))
	out := &head{most: outputBytes}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // remaining processes of its group
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return nil // it succeeded; a process that it left still held its output open
	}
	if said := strings.Join(strings.Fields(out.String()), " "); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// head keeps the beginning of its input.
type head struct {
	kept bytes.Buffer // not embedded: io.Copy would use its ReadFrom, which has no limit
	most int
}

func (h *head) String() string { return h.kept.String() }

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), h.most-h.kept.Len())])
	return len(p), nil
}
