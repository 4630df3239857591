package killtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program that is started, killed and started again.
type process struct {
	name string
	args []string // of another program than this one
	env  []string
	hear func(string) // called with each line that it prints

	cmd   *exec.Cmd
	heard sync.WaitGroup
	kills int

	mu   sync.Mutex // guards the fields below
	said []string   // first words of its lines since it was started, each once
}

// start starts it again.
func (p *process) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if len(p.args) > 0 {
		cmd = exec.Command(p.args[0], p.args[1:]...)
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // nothing outlives the test
	cmd.Env = append(append(os.Environ(), roleEnv+"="+p.name), p.env...)
	cmd.Stderr = &logged{t: t, name: p.name}
	stdin, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	p.cmd, p.said = cmd, nil
	p.heard.Go(func() {
		defer stdin.Close()
		lines(out, func(line string) {
			p.note(line)
			if p.hear != nil {
				p.hear(line)
			}
		})
	})
}

func (p *process) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	word, _, _ := strings.Cut(line, " ")
	if !slices.Contains(p.said, word) {
		p.said = append(p.said, word)
	}
}

// waitFor waits until it has said a line that begins with that word.
func (p *process) waitFor(t *testing.T, word string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < drainTime; time.Sleep(5 * time.Millisecond) {
		p.mu.Lock()
		there := slices.Contains(p.said, word)
		p.mu.Unlock()
		if there {
			return
		}
	}
	t.Errorf("%s does not say %q", p.name, word)
}

// kill is kill -9. It returns when the process is gone and all that it said was heard.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	p.kills++
	p.cmd.Process.Kill()
	p.wait()
}

// end asks it to end, and returns how it did.
func (p *process) end(t *testing.T, within time.Duration) error {
	t.Helper()
	if p.cmd == nil {
		return nil
	}
	check(t, p.cmd.Process.Signal(unix.SIGTERM))
	cmd := p.cmd
	timer := time.AfterFunc(within, func() { cmd.Process.Kill() })
	err := p.wait()
	if !timer.Stop() {
		return fmt.Errorf("%s did not end within %v", p.name, within)
	}
	return err
}

func (p *process) wait() error {
	p.heard.Wait() // before Wait, which closes the pipe
	err := p.cmd.Wait()
	p.cmd = nil
	return err
}

// logged passes what a process complains of on to the test's log.
type logged struct {
	t    *testing.T
	name string
}

func (l *logged) Write(p []byte) (int, error) {
	if testing.Verbose() {
		l.t.Logf("%s: %s", l.name, strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
