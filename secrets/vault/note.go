package vault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/internal/regular"
)

// Note lists the tokens and policies of a step at Vault, for a sweep after a custody was killed. It contains nothing
// with which a secret can be read. It need not survive a power loss: the tokens expire within a minute.
type Note struct {
	Vault     string   `json:"vault"` // address and namespace
	Run       string   `json:"run"`
	Policies  []string `json:"policies"`
	Accessors []string `json:"accessors"`
}

const (
	noteSuffix = ".vault.json"
	// draftAge is the age from which an unfinished note counts as abandoned.
	draftAge = time.Minute
	// maxNote bounds what a note lists: the tokens of a step, and their policies.
	maxNote = 4096
)

// Check returns an error unless n is a note of a run on the Vault of c, under a name that CheckName accepts.
func (n Note) Check(c Config, run string) error {
	switch {
	case n.Vault != vaultOf(c) || n.Run != run:
		return errors.New("the note is not one on this run and its Vault")
	case len(n.Policies)+len(n.Accessors) > maxNote:
		return fmt.Errorf("the note lists more than %d policies and tokens", maxNote)
	}
	for _, p := range n.Policies { // a sweep deletes them
		if id, ok := strings.CutPrefix(p, policyPrefix); !ok || !isID(id) {
			return fmt.Errorf("the note lists the policy %.100q, which is not a step's", p)
		}
	}
	return nil
}

// CheckName returns an error unless name is one of a note: lower-case letters and digits, and noteSuffix.
func CheckName(name string) error {
	base, ok := strings.CutSuffix(name, noteSuffix)
	if !ok || !isID(base) {
		return fmt.Errorf("a note cannot have the name %.100q", name)
	}
	return nil
}

// isID reports whether s is like strings.ToLower(rand.Text()).
func isID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// vaultOf returns what a note names the Vault.
func vaultOf(c Config) string { return c.Address + " " + c.Namespace }

// note is one of this broker.
type note struct {
	Note
	name  string
	place Place
}

func (b *Broker) newNote(run string) *note {
	return &note{Note{Vault: vaultOf(b.cfg), Run: run}, strings.ToLower(rand.Text()) + noteSuffix, b.cfg.place()}
}

// save stores the note atomically, where Sweep finds it.
func (n *note) save() error { return n.place.SaveNote(n.name, n.Note) }

func (n *note) remove() error { return n.place.RemoveNote(n.name) }

// SaveNote implements Place.
func (h here) SaveNote(name string, n Note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.c.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(h.c.Dir, ".draft-*"+noteSuffix) // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(h.c.Dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// RemoveNote implements Place.
func (h here) RemoveNote(name string) error {
	if err := os.Remove(filepath.Join(h.c.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Notes implements Place. It removes old drafts.
func (h here) Notes() (map[string]Note, error) {
	entries, err := os.ReadDir(h.c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	all := map[string]Note{}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), noteSuffix) {
			continue
		}
		path := filepath.Join(h.c.Dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			err = errors.Join(err, removeDraft(path))
			continue
		}
		n, e2 := readNote(path)
		if errors.Is(e2, fs.ErrNotExist) { // another process has swept it
			continue
		}
		if err = errors.Join(err, e2); e2 == nil {
			all[e.Name()] = n
		}
	}
	return all, err
}

func readNote(path string) (n Note, err error) {
	text, err := regular.ReadFile(path)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(text, &n); err != nil {
		return n, fmt.Errorf("the note %s about tokens at Vault cannot be read; the tokens have expired if it is older than a minute: remove it: %w", path, err)
	}
	return n, nil
}

// clear revokes and deletes the note's tokens and policies at Vault, and returns when Vault has confirmed it.
func (b *Broker) clear(ctx context.Context, n Note) error {
	var err error
	for _, accessor := range n.Accessors {
		err = errors.Join(err, b.session.kill(ctx, accessor))
	}
	for _, name := range n.Policies {
		_, e := b.session.ask(ctx, http.MethodDelete, "sys/policies/acl/"+name, nil)
		if e != nil && !refused(e, http.StatusNotFound) {
			err = errors.Join(err, fmt.Errorf("delete a policy: %w", e))
		}
	}
	return err
}

// Left reports whether dir has notes for Sweep, and returns the age of the youngest. It makes no calls to Vault.
func Left(dir string, alive func(run string) bool) (some bool, youngest time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, 0
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasSuffix(e.Name(), noteSuffix) {
			continue
		}
		if n, err := readNote(filepath.Join(dir, e.Name())); err == nil && alive(n.Run) {
			continue
		}
		if age := time.Since(info.ModTime()); !some || age < youngest {
			some, youngest = true, age
		}
	}
	return some, youngest
}

// Sweep revokes the tokens and deletes the policies of runs that are not alive. Notes on what Vault did not confirm
// remain for the next call, as do those on another Vault.
func (b *Broker) Sweep(ctx context.Context, alive func(run string) bool) error {
	place := b.cfg.place()
	notes, failed := place.Notes()
	for name, n := range notes {
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		if n.Vault != vaultOf(b.cfg) || alive(n.Run) {
			continue
		}
		err := b.clear(ctx, n)
		if err != nil {
			err = fmt.Errorf("sweep the tokens of run %s at Vault: %w", n.Run, err)
		} else {
			err = place.RemoveNote(name)
		}
		failed = errors.Join(failed, err)
		if errors.Is(err, errGone) { // the others would take as long to fail
			return failed
		}
	}
	return failed
}

// removeDraft removes the unfinished note of a killed process.
func removeDraft(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && time.Since(info.ModTime()) < draftAge {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
