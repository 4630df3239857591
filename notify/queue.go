package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// Limits of a queue. Messages beyond them are dropped, and counted in the State.
const (
	maxWaiting = 1000           // messages of one webhook
	maxAge     = 72 * time.Hour // of an undelivered message
)

var errFull = errors.New("the queue is full")

// queue is the messages of one webhook that wait on disk, a file each, and statistics of earlier ones.
//
//	notify/NAME/lock, state.json, 20261123T070000.000000000-msg_....json
type queue struct{ dir string }

// State is the state of one target's deliveries.
type State struct {
	Name      string    `json:"-"`
	Waiting   int       `json:"-"`
	Delivered uint64    `json:"delivered"`
	Dropped   uint64    `json:"dropped"` // the queue was full, the message too old, or permanently refused
	Last      time.Time `json:"last,omitzero"`
	Since     time.Time `json:"failing_since,omitzero"` // zero: the last attempt succeeded
	Error     string    `json:"error,omitempty"`

	Retries map[string]time.Time `json:"retries,omitempty"` // next attempt of failed messages, by id
}

// entry is one waiting message.
type entry struct {
	path string // "" if it is only in memory
	m    Message
}

// add durably stores a message. It does not replace an existing one.
func (q queue) add(m Message) (string, error) {
	waiting, err := q.names()
	if err != nil {
		return "", err
	}
	for _, name := range waiting {
		if idOf(name) == m.ID {
			return filepath.Join(q.dir, name), nil
		}
	}
	if len(waiting) >= maxWaiting {
		return "", errFull
	}
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(q.dir, m.Time.Format("20060102T150405.000000000")+"-"+m.ID+".json")
	return path, durable.Replace(path, m.body("json"), 0o600)
}

// names lists the waiting messages, oldest first.
func (q queue) names() ([]string, error) {
	all, err := os.ReadDir(q.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if name := e.Name(); strings.Contains(name, "-msg_") && strings.HasSuffix(name, ".json") {
			names = append(names, name)
		}
	}
	return names, nil
}

// errNoMessage: a file in the queue is not a message.
var errNoMessage = errors.New("it is set aside as .bad")

// read returns a waiting message. It sets a file that is not a message aside and returns errNoMessage.
func (q queue) read(name string) (entry, error) {
	path := filepath.Join(q.dir, name)
	e := entry{path: path}
	b, err := regular.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(b, &e.m); err == nil && e.m.ID != idOf(name) {
			err = fmt.Errorf("it has another message, %.100q", e.m.ID)
		}
	} else if !errors.Is(err, fs.ErrInvalid) {
		return entry{}, err
	}
	if err == nil {
		return e, nil
	}
	if err := os.Rename(path, path+".bad"); err != nil {
		return entry{}, err
	}
	return entry{}, fmt.Errorf("%s: %w: %w", path, err, errNoMessage)
}

// idOf returns the id of the message in a file of this name.
func idOf(name string) string {
	return strings.TrimSuffix(name[strings.Index(name, "-msg_")+1:], ".json")
}

func (q queue) state() (State, error) {
	s := State{Name: filepath.Base(q.dir)}
	b, err := regular.ReadFile(filepath.Join(q.dir, "state.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, err
}

// note changes the state; the caller holds the lock.
func (q queue) note(change func(*State)) error {
	s, err := q.state()
	if err != nil {
		s = State{} // statistics only: start again
	}
	change(&s)
	if err := os.MkdirAll(q.dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(q.dir, "state.json"), append(b, '\n'), 0o600)
}

// settle records the result of an attempt. A success ends the failing state if no message waits for another attempt.
func (s *State) settle(err error, dropped uint64) {
	s.Dropped += dropped
	if err == nil {
		s.Delivered++
		s.Last = time.Now().UTC()
		if len(s.Retries) == 0 {
			s.Since, s.Error = time.Time{}, ""
		}
		return
	}
	if s.Since.IsZero() {
		s.Since = time.Now().UTC()
	}
	s.Error = err.Error()
}

// Forget removes the waiting messages about an erased record, of all webhooks.
func Forget(dir, run string, seq uint64) error {
	targets, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, t := range targets {
		q := queue{filepath.Join(dir, t.Name())}
		names, listErr := q.names()
		err = errors.Join(err, listErr)
		for _, name := range names {
			e, readErr := q.read(name)
			if errors.Is(readErr, fs.ErrNotExist) {
				continue // delivered concurrently
			}
			if readErr == nil && e.m.Run == run && e.m.Seq == seq {
				readErr = os.Remove(e.path)
			}
			err = errors.Join(err, readErr)
		}
	}
	return err
}
