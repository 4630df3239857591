package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/ship"
)

// Pruned is the result of Prune: what it removed, or with dry what it would remove.
type Pruned struct {
	Deleted  []string // runs that ended before delete_after
	KeptRuns []Kept   // runs that ended before delete_after and were not deleted
	Segments int
	Bytes    int64
	Kept     int // segments that were due, but are not in the store or under no checkpoint
}

// candidate is a segment that retention may remove.
type candidate struct {
	run    string
	path   string
	size   int64
	sealed time.Time

	manifest statement.Manifest // set by read
	digest   [32]byte
}

// Prune deletes the runs that are older than host.yaml's delete_after. Of other ended runs it removes the oldest segments beyond
// host.yaml's retain. It removes a segment only if the store has all its rows, which it hashes
// again to check that, and if a checkpoint covers its manifest. Manifests stay: with the store's rows, the whole
// record can be rebuilt. With dry it removes nothing. If ctx ends early, the next Prune continues.
func (r Retention) Prune(ctx context.Context, dry bool) (p Pruned, err error) {
	p.Deleted, p.KeptRuns, err = r.host.Deletions().expire(ctx, dry)
	return p, errors.Join(err, r.pruneSegments(ctx, dry, &p))
}

func (r Retention) pruneSegments(ctx context.Context, dry bool, p *Pruned) error {
	due, err := r.due(ctx)
	if err != nil || len(due) == 0 {
		return err
	}
	w, closeTransport, err := r.host.Shipping().openTransport(ctx)
	if err != nil {
		return err
	}
	covered, err := r.covered(ctx)
	if err != nil {
		return errors.Join(err, closeTransport())
	}
	held := map[string]map[uint64]ship.Held{}
	for _, c := range due {
		if dry && slices.Contains(p.Deleted, c.run) {
			continue
		}
		if held[c.run] == nil {
			if held[c.run], err = r.held(ctx, w, c.run); err != nil {
				break
			}
		}
		one, there := held[c.run][c.manifest.Segment]
		if !there || one.Manifest != c.digest || one.Root != [32]byte(c.manifest.Root) || !covered(c) {
			p.Kept++
			continue
		}
		if !dry {
			if err = c.remove(); err != nil {
				break
			}
		}
		p.Segments++
		p.Bytes += c.size
	}
	return errors.Join(err, closeTransport())
}

// due lists the segments older than the age or beyond the size, oldest first.
func (r Retention) due(ctx context.Context) ([]candidate, error) {
	age, size := time.Duration(r.host.config.Retain.Age), int64(r.host.config.Retain.Size)
	if age == 0 && size == 0 {
		return nil, nil
	}
	all, err := r.candidates()
	if err != nil {
		return nil, err
	}
	var total int64
	for _, c := range all {
		total += c.size
	}
	var due []candidate
	for _, c := range all { // runs are in the order of their start, segments in the order of their seqs
		old := age > 0 && time.Since(c.sealed) > age
		if !old && (size == 0 || total <= size) {
			continue
		}
		if err := r.read(&c); err != nil {
			return nil, err
		}
		due = append(due, c)
		total -= c.size
	}
	return due, ctx.Err()
}

// candidates lists the segments that are here, of closed runs that were shipped completely.
func (r Retention) candidates() ([]candidate, error) {
	runs, err := r.host.RunLogs().all()
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, run := range runs {
		if r.host.RunLogs().Live(run) || !r.host.RunLogs().HasWhole(run) {
			continue
		}
		segments, err := wal.Segments(r.host.RunDir(run))
		if err != nil {
			return nil, err
		}
		for _, path := range segments {
			segment, err := os.Stat(path)
			sealed, unsealed := os.Stat(manifestOf(path))
			if err == nil && unsealed == nil {
				all = append(all, candidate{run: run, path: path, size: segment.Size(), sealed: sealed.ModTime()})
			}
		}
	}
	return all, nil
}

// manifestOf returns the path of a segment's manifest.
func manifestOf(segment string) string {
	return strings.TrimSuffix(segment, wal.SegmentSuffix) + wal.ManifestSuffix
}

// read sets the fields from the manifest, after checking its signature.
func (r Retention) read(c *candidate) error {
	signed, err := regular.ReadFile(manifestOf(c.path))
	if err == nil {
		c.digest = sha256.Sum256(signed)
		c.manifest, _, err = r.host.RunLogs().openManifest(signed)
	}
	if err != nil {
		return fmt.Errorf("run %s: %s: %w", c.run, filepath.Base(c.path), err)
	}
	return nil
}

func (r Retention) held(ctx context.Context, w transport, run string) (map[uint64]ship.Held, error) {
	list, err := w.Stored(ctx, r.host.RunLogs().tenantOf(run), run, true)
	if err != nil {
		return nil, fmt.Errorf("run %s: cannot read what the store has of it: %w", run, err)
	}
	held := map[uint64]ship.Held{}
	for _, one := range list {
		held[one.Index] = one
	}
	return held, nil
}

// covered returns a function that reports whether the last checkpoint covers a segment's manifest.
func (rt Retention) covered(ctx context.Context) (func(candidate) bool, error) {
	r, err := rt.host.ManifestLog().Reader()
	if err != nil {
		return nil, fmt.Errorf("prune: host log: %w", err)
	}
	checkpoint, err := rt.host.ManifestLog().checkpoint(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("prune: host log: %w", err)
	}
	return func(c candidate) bool {
		index, err := r.Index(ctx, statement.ManifestLeaf(c.run, c.manifest.Segment, c.digest))
		return err == nil && index < checkpoint.Size
	}, nil
}

// remove removes the segment and its leaves. Before, it marks the run as pruned.
func (c candidate) remove() error {
	mark := filepath.Join(filepath.Dir(c.path), prunedFile)
	f, err := regular.OpenFile(mark, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return err
	}
	leaves := filepath.Join(filepath.Dir(c.path), wal.FileName(c.manifest.First, wal.LeavesSuffix))
	return errors.Join(os.Remove(c.path), os.Remove(leaves))
}

// prunedFile in a run's directory marks that retention removed segments of the run.
const prunedFile = "pruned"

// IsPruned reports whether some segments of a run are in the store only.
func (r Retention) IsPruned(run string) bool {
	_, err := os.Stat(filepath.Join(r.host.RunDir(run), prunedFile))
	return err == nil
}
