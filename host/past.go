package host

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
func (l ManifestLog) keepWitnessed(run string, signed []byte) error {
	stamp, err := l.stampFileOf(signed)
	if err != nil || !proof.Dated(signed, stamp) {
		return err
	}
	path := filepath.Join(l.host.RunDir(run), witnessedFile)
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
func (l ManifestLog) stampFileOf(checkpoint []byte) ([]byte, error) {
	token, err := regular.ReadFile(l.stampFile(checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return token, err
}

// past has this host's checkpoints that covered a run. It implements proof.Past.
type past struct {
	host *Host
	log  *hostlog.Reader
	read func() ([]hostlog.Checkpoint, error) // once, in the order of their sizes, not checked
}

func (l ManifestLog) pastOf(run string, log *hostlog.Reader) *past {
	return &past{host: l.host, log: log, read: sync.OnceValues(func() ([]hostlog.Checkpoint, error) {
		all, err := log.Unchecked(context.Background()) // it waits for nothing
		if err != nil {
			return nil, err
		}
		text, err := regular.ReadFile(filepath.Join(l.host.RunDir(run), witnessedFile))
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
		if stamp, err = p.host.ManifestLog().stampFileOf(c.Note); err != nil {
			return nil, nil, err
		}
		if proof.Dated(c.Note, stamp) {
			return c.Note, stamp, nil
		}
	}
	return nil, nil, fmt.Errorf("no checkpoint over entry %d: %w", index, fs.ErrNotExist)
}

var _ proof.Past = (*past)(nil)
