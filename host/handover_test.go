package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/host"
)

var errKilled = errors.New("killed")

// failing is a Handover whose calls fail from the one with number at on, after they were carried out if late.
type failing struct {
	host.Handover
	at    int
	late  bool
	calls int
}

// step is called around each call.
func (f *failing) step(do func() error) error {
	if f.calls++; f.calls < f.at || f.at == 0 {
		return do()
	}
	if f.late && f.calls == f.at {
		return errors.Join(do(), errKilled)
	}
	return errKilled
}

func (f *failing) Files(context.Context) (names []string, err error) {
	err = f.step(func() (err error) {
		names, err = f.Handover.Files()
		return err
	})
	return names, err
}

func (f *failing) Open(_ context.Context, name string) (file *os.File, err error) {
	err = f.step(func() (err error) {
		file, err = f.Handover.Open(name)
		return err
	})
	if err != nil && file != nil {
		file.Close()
	}
	return file, err
}

func (f *failing) Done(context.Context) error { return f.step(f.Handover.Done) }

// TestHandover: wherever a takeover was interrupted, the next one completes it, and the log is as it was. Then nothing can add to the old one.
func TestHandover(t *testing.T) {
	whole := 0 // calls of a takeover
	strange := []string{"keys/host.key", "runs/../keys/host.key", "runs", "link", "log/../../etc/passwd", "../x", "/etc/passwd", ""}
	for at := 0; at == 0 || at <= whole; at++ {
		for _, late := range []bool{false, true} {
			owner, err := host.Open(t.TempDir())
			must(t, err)
			run := shipped(t, owner)
			checkpoint, err := os.ReadFile(filepath.Join(owner.Dir, "log", "checkpoint"))
			must(t, err)
			server, err := owner.Keys().Server(t.Context(), owner.Signed())
			must(t, err)
			var served *host.ServedError
			if err := owner.AccessLog(testRedactor(), "test").Record(t.Context(), audit.Access{Who: "ann", Action: "view", Verdict: audit.Allow}); !errors.As(err, &served) {
				t.Fatalf("root's log can be added to: %v", err)
			}
			h, err := host.Open(t.TempDir())
			must(t, err)
			f := &failing{Handover: host.NewHandover(owner, server.Last), at: at, late: late}
			must(t, os.Symlink("keys/host.key", filepath.Join(owner.Dir, "runs", "link")))
			for _, name := range append(strange, "runs/link") {
				if got, err := f.Handover.Open(name); err == nil {
					got.Close()
					t.Errorf("%q is handed over", name)
				}
			}
			if err := host.TakeOver(t.Context(), h, f); at > 0 && !errors.Is(err, errKilled) {
				t.Fatalf("call %d: %v", at, err)
			}
			if at == 0 {
				whole = f.calls
			}
			again := &failing{Handover: f.Handover}
			must(t, host.TakeOver(t.Context(), h, again))
			got, err := os.ReadFile(filepath.Join(h.Dir, "log", "checkpoint"))
			if err != nil || !bytes.Equal(got, checkpoint) {
				t.Fatalf("call %d: the checkpoint is %s: %v", at, got, err)
			}
			if !h.RunLogs().HasWhole(run) || owner.RunLogs().Has(run) {
				t.Errorf("call %d: the run was not moved", at)
			}
			left, err := filepath.Glob(filepath.Join(h.Dir, "log.[pt]*"))
			if err != nil || len(left) > 0 {
				t.Errorf("call %d: left: %v, %v", at, left, err)
			}
			if err := f.Second(); err != nil {
				t.Errorf("call %d: %v", at, err)
			}
			must(t, server.Close())
		}
	}
	if whole < 8 {
		t.Errorf("a takeover makes %d calls", whole)
	}
}

// TestSecondLog: of a host whose earlier version has begun two logs, nothing is handed over, and the second one is named.
func TestSecondLog(t *testing.T) {
	owner, err := host.Open(t.TempDir())
	must(t, err)
	server, err := owner.Keys().Server(t.Context(), filepath.Join(t.TempDir(), "signed")) // the service has another log
	must(t, err)
	run := shipped(t, owner)
	v := host.NewHandover(owner, server.Last)
	if err := v.Second(); err == nil || !strings.Contains(err.Error(), "second log") {
		t.Errorf("the second log is not named: %v", err)
	}
	h, err := host.Open(t.TempDir())
	must(t, err)
	must(t, host.TakeOver(t.Context(), h, &failing{Handover: v}))
	if h.RunLogs().Has(run) || !owner.RunLogs().Has(run) {
		t.Error("the run was handed over")
	}
	if f, err := v.Open("log/checkpoint"); err == nil {
		f.Close()
		t.Error("the log is handed over")
	}
	must(t, server.Close())
}
