package home

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/internal/regular"
)

// witnessedFile in a run's directory has the checkpoints by which its manifests were first in the log, as far as witnesses
// or an authority say when that was. The log itself keeps only some of the old ones.
const witnessedFile = "witnessed"

// witnessedEvery is how often a live run's checkpoint is kept; the one over its end always is.
const witnessedEvery = 10 * time.Minute

// keepWitnessed adds a checkpoint to those of a run.
func (h *Home) keepWitnessed(run string, signed []byte) error {
	stamp, err := h.stampFileOf(signed)
	if err != nil || !proof.Dated(signed, stamp) {
		return err
	}
	path := filepath.Join(h.RunDir(run), witnessedFile)
	have, err := regular.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.HasSuffix(have, append(slices.Clone(signed), '\n')) {
		return nil
	}
	return durable.Replace(path, slices.Concat(have, signed, []byte("\n")), 0o600)
}

// stampFileOf is the time stamp over a checkpoint, nil if there is none.
func (h *Home) stampFileOf(checkpoint []byte) ([]byte, error) {
	token, err := regular.ReadFile(h.stampFile(checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return token, err
}

// past has this host's checkpoints that covered a run. It implements proof.Past.
type past struct {
	home *Home
	log  *hostlog.Reader
	read func() ([]hostlog.Checkpoint, error) // once, in the order of their sizes, not checked
}

func (h *Home) pastOf(run string, log *hostlog.Reader) *past {
	return &past{home: h, log: log, read: sync.OnceValues(func() ([]hostlog.Checkpoint, error) {
		all, err := log.Unchecked(context.Background()) // it waits for nothing
		if err != nil {
			return nil, err
		}
		text, err := regular.ReadFile(filepath.Join(h.RunDir(run), witnessedFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, hostlog.Unchecked(text)...)
		slices.SortStableFunc(all, func(a, b hostlog.Checkpoint) int { return cmp.Compare(a.Size, b.Size) })
		return all, nil
	})}
}

// First implements proof.Past.
func (p *past) First(_ context.Context, index uint64) (signed, stamp []byte, err error) {
	all, err := p.read()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range all[sort.Search(len(all), func(i int) bool { return all[i].Size > index }):] {
		if _, err := p.log.Open(c.Note); err != nil {
			continue // it is not the log's
		}
		if stamp, err = p.home.stampFileOf(c.Note); err != nil {
			return nil, nil, err
		}
		if proof.Dated(c.Note, stamp) {
			return c.Note, stamp, nil
		}
	}
	return nil, nil, fmt.Errorf("no checkpoint over entry %d: %w", index, fs.ErrNotExist)
}

var _ proof.Past = (*past)(nil)
