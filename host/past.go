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

// witnessedFile in a run's directory has the first checkpoints over the run's manifests whose time is attested, by witnesses
// or by a time-stamping authority. The log itself keeps only some of its old checkpoints.
const witnessedFile = "witnessed"

// witnessedEvery is the interval at which checkpoints of a live run are stored; the checkpoint over its end is always stored.
const witnessedEvery = 10 * time.Minute

// keepWitnessed stores a checkpoint with a run, unless its time is not attested.
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

// stampFileOf returns the time stamp over a checkpoint, nil if there is none.
func (l ManifestLog) stampFileOf(checkpoint []byte) ([]byte, error) {
	token, err := regular.ReadFile(l.stampFile(checkpoint))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return token, err
}

// past has this host's checkpoints that cover a run. It implements proof.Past.
type past struct {
	host *Host
	log  *hostlog.Reader
	read func() ([]hostlog.Checkpoint, error) // reads once; in the order of their sizes, not verified
}

func (l ManifestLog) pastOf(run string, log *hostlog.Reader) *past {
	return &past{host: l.host, log: log, read: sync.OnceValues(func() ([]hostlog.Checkpoint, error) {
		all, err := log.Unchecked(context.Background()) // it does not block
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
			continue // it is not a checkpoint of this log
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
