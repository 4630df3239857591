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

// note lists the tokens and policies of a step at Vault, for a sweep after a custody was killed. It contains nothing
// with which a secret can be read. It need not survive a power loss: the tokens expire within a minute.
type note struct {
	Vault     string   `json:"vault"` // address and namespace
	Run       string   `json:"run"`
	Policies  []string `json:"policies"`
	Accessors []string `json:"accessors"`

	path string
}

const (
	noteSuffix = ".vault.json"
	// draftAge is the age from which an unfinished note counts as abandoned.
	draftAge = time.Minute
)

func (b *Broker) newNote(run string) *note {
	return &note{
		Vault: b.cfg.Address + " " + b.cfg.Namespace, Run: run,
		path: filepath.Join(b.cfg.Dir, strings.ToLower(rand.Text())+noteSuffix),
	}
}

// save stores the note atomically, where Sweep finds it.
func (n *note) save() error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(n.path), ".draft-*"+noteSuffix) // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), n.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (n *note) remove() error {
	if err := os.Remove(n.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// clear revokes and deletes the note's tokens and policies at Vault, and returns when Vault has confirmed it.
func (b *Broker) clear(ctx context.Context, n *note) error {
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
		var n note
		if text, err := regular.ReadFile(filepath.Join(dir, e.Name())); err == nil && json.Unmarshal(text, &n) == nil && alive(n.Run) {
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
	entries, err := os.ReadDir(b.cfg.Dir)
	if err != nil {
		return err
	}
	var failed error
	for _, e := range entries {
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), noteSuffix) {
			continue
		}
		err := b.sweep(ctx, filepath.Join(b.cfg.Dir, e.Name()), alive)
		failed = errors.Join(failed, err)
		if errors.Is(err, errGone) { // the others would take as long to fail
			return failed
		}
	}
	return failed
}

func (b *Broker) sweep(ctx context.Context, path string, alive func(run string) bool) error {
	if strings.HasPrefix(filepath.Base(path), ".") {
		return removeDraft(path)
	}
	text, err := regular.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // another process has swept it
		return nil
	}
	if err != nil {
		return err
	}
	n := &note{path: path}
	if err := json.Unmarshal(text, n); err != nil {
		return fmt.Errorf("the note %s about tokens at Vault cannot be read; the tokens have expired if it is older than a minute: remove it: %w", path, err)
	}
	if n.Vault != b.newNote("").Vault || alive(n.Run) {
		return nil
	}
	if err := b.clear(ctx, n); err != nil {
		return fmt.Errorf("sweep the tokens of run %s at Vault: %w", n.Run, err)
	}
	return n.remove()
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
