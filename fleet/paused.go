package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/run"
)

// pausedSandbox is what another process of the service needs to continue a paused sandbox. It is written before the state is stored, and removed after the
// state was removed: a file without a state is of a sandbox that has ended.
type pausedSandbox struct {
	ID              string
	Created, Latest time.Time
	Request         Request
	Terms           Terms
	Runs, Before    []string
	Rested          rested
	Processes       []pausedProcess
}

// pausedProcess is a process of it.
type pausedProcess struct {
	Name        string
	Started     time.Time
	Command     run.Command
	Offsets     map[string]int64 // of the ends of its outputs
	InputClosed bool
	Begun       bool       // see Process
	Ended       *time.Time // nil: it continues
	Exit        channel.Exit
	Error       string // why it ended; empty: by itself
}

// pausedDir keeps paused sandboxes in the files of a directory; empty: none. It is safe for concurrent use with different sandboxes.
type pausedDir string

const pausedSuffix = ".json"

func (k pausedDir) path(id string) string { return filepath.Join(string(k), id+pausedSuffix) }

// put writes the file of a sandbox.
func (k pausedDir) put(s pausedSandbox) error {
	if k == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(string(k), 0o700)
	}
	if err == nil {
		err = durable.Replace(k.path(s.ID), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the paused sandbox: %w", err)
	}
	return nil
}

// remove removes the file of a sandbox, if there is one.
func (k pausedDir) remove(id string) error {
	if k == "" {
		return nil
	}
	if err := os.Remove(k.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// maxPaused bounds a file in bytes.
const maxPaused = 64 << 20

// all returns the sandboxes, and an error for those that cannot be read.
func (k pausedDir) all() (list []pausedSandbox, err error) {
	if k == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), pausedSuffix) {
			continue
		}
		var s pausedSandbox
		text, err := regular.ReadFile(filepath.Join(string(k), e.Name()))
		if err == nil && len(text) > maxPaused {
			err = fmt.Errorf("it has more than %d bytes", maxPaused)
		}
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err == nil && e.Name() != s.ID+pausedSuffix {
			err = fmt.Errorf("it is of the sandbox %.80q", s.ID)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("paused sandbox %s: %w", e.Name(), err))
			continue
		}
		list = append(list, s)
	}
	return list, errors.Join(append(errs, err)...)
}

// keep writes what is kept of the sandbox. The caller holds mu.
func (s pausing) keep(r rested) error { return s.fleet.paused.put(s.described(r)) }

// described returns what is kept. The caller holds mu.
func (s pausing) described(r rested) pausedSandbox {
	k := pausedSandbox{ID: s.ID, Created: s.Created, Latest: s.latest, Request: s.request, Terms: s.terms, Runs: s.runs, Before: s.before, Rested: r}
	for _, p := range s.order {
		one := pausedProcess{Name: p.Name, Started: p.Started, Command: p.Command, Offsets: map[string]int64{}, InputClosed: p.stdin.isClosed(), Begun: p.begun}
		for name, o := range p.outputs {
			one.Offsets[name] = o.length()
		}
		if p.over() {
			one.Ended, one.Exit = &p.ended, p.exit
			if p.err != nil {
				one.Error = p.err.Error()
			}
		}
		k.Processes = append(k.Processes, one)
	}
	return k
}

// recall sets how a process ended before.
func (p *Process) recall(k pausedProcess) {
	p.exit, p.ended = k.Exit, *k.Ended
	if k.Error != "" {
		p.err = errors.New(k.Error)
	}
	for _, o := range p.outputs {
		o.end()
	}
	p.stdin.Close()
	p.sandbox.running--
	close(p.done)
}

// revival adds paused sandboxes to a fleet.
type revival struct{ *Fleet }

// restore adds the sandboxes that are paused, and removes what is left of those that have ended. It is called before the fleet is used.
func (f revival) restore(ctx context.Context) error {
	list, err := f.paused.all()
	errs := []error{err}
	for _, k := range list {
		there, err := f.found(ctx, &k)
		if err != nil {
			errs = append(errs, fmt.Errorf("paused sandbox %s: %w", k.ID, err))
		}
		if there {
			f.revive(k)
		}
	}
	return errors.Join(errs...)
}

// revive adds a paused sandbox. If the fleet is closed, it returns nil: the next one restores the sandbox.
func (f revival) revive(k pausedSandbox) *Sandbox {
	s := newSandbox(f.Fleet, k.ID, k.Request, k.Terms)
	s.Created, s.latest, s.runs, s.before, s.rested, s.state = k.Created, k.Latest, k.Runs, k.Before, &k.Rested, Paused
	s.idle.Stop()
	s.expiry.Stop()
	for _, one := range k.Processes {
		p := newProcess(s, one.Command)
		p.Name, p.Started, p.begun = one.Name, one.Started, one.Begun
		for name, o := range p.outputs {
			o.start = one.Offsets[name]
		}
		if one.InputClosed {
			p.stdin.Close()
		}
		pausing{s}.add(p)
		switch {
		case one.Ended != nil:
			p.recall(one)
		case k.Rested.Saved.Files != "":
			p.endPaused(k.Rested.Saved.Files)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.register(s)
	pausing{s}.rests() // plans its lifecycle
	f.work.Go(s.live)
	return s
}
