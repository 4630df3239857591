package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// Reason is why the store removes a snapshot by itself.
type Reason string

// The reasons.
const (
	Expired    Reason = "expired"
	OverBudget Reason = "budget"
)

// Config is how a Store works.
type Config struct {
	Keys   Wrapper
	Budget int64            // bytes that all snapshots together may occupy; 0: no limit
	Now    func() time.Time // nil: time.Now
	// Removing is called before the store removes a snapshot by itself; an error keeps it. If this process dies before the removal, another call
	// for the same snapshot follows. It must not use the store. Nil: none.
	Removing func(ctx context.Context, i Info, why Reason) error
}

// Store is the snapshots in a directory. It is safe for concurrent use, also by several processes.
type Store struct {
	files
	config Config
}

// Open opens the store in a directory, which it creates, and removes what dead processes left.
func Open(dir string, c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Store{files(dir), c}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("paused states: %w", err)
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("paused states: %w", err)
	case !info.IsDir():
		return nil, fmt.Errorf("%s is not a directory: find out who put it there, and move it away", dir)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %#o, and other users can enter it: chmod 700 it", dir, info.Mode().Perm())
	}
	return s, s.clean()
}

// info describes the snapshot of a manifest.
func (m manifest) info(size int64) Info {
	return Info{Binding: m.Binding, Created: m.Created, Expires: m.Expires, Size: size}
}

// Stat describes the snapshot of a run.
func (s *Store) Stat(run string) (Info, error) {
	if !store.ValidRun(run) {
		return Info{}, fmt.Errorf("%.80q is not the ID of a run", run)
	}
	f, err := openFile(s.path(run), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, fmt.Errorf("run %s: %w", run, ErrNotFound)
	}
	if err != nil {
		return Info{}, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	_, m, _, err := readManifest(f, len(magic)+maxManifest+1)
	if err != nil || m.Run != run {
		at := stat.ModTime()
		return Info{Binding: Binding{Run: run}, Created: at, Expires: at.Add(DefaultKeep), Size: stat.Size(), Damaged: true}, nil
	}
	return m.info(stat.Size()), nil
}

// all lists the snapshots, oldest first.
func (s *Store) all(ctx context.Context) ([]Info, error) {
	entries, err := os.ReadDir(string(s.files))
	if err != nil {
		return nil, fmt.Errorf("paused states: %w", err)
	}
	var list []Info
	for _, e := range entries {
		run, found := runOf(e)
		if !found {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := s.Stat(run)
		if errors.Is(err, ErrNotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b Info) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Run, b.Run)
	})
	return list, nil
}

// List lists the snapshots of a tenant, oldest first. Damaged ones have no tenant.
func (s *Store) List(ctx context.Context, tenant string) ([]Info, error) {
	list, err := s.all(ctx)
	return slices.DeleteFunc(list, func(i Info) bool { return i.Tenant != tenant || i.Damaged }), err
}

// Damaged lists the snapshots whose manifest cannot be read.
func (s *Store) Damaged(ctx context.Context) ([]Info, error) {
	list, err := s.all(ctx)
	return slices.DeleteFunc(list, func(i Info) bool { return !i.Damaged }), err
}
