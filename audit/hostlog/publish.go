package hostlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/durable"
)

// Publish returns a checkpoint that covers the entry at index. It publishes one if necessary, with a quorum if there are
// witnesses. One checkpoint can serve several concurrent callers.
//
// Without a quorum it publishes nothing and the error is an *Unwitnessed. With FailOpen it publishes the checkpoint and
// returns it along with that error, and the next Publish asks for a quorum again. ErrRolledBack, ErrForked and
// ErrTilesAltered mean that the log does not extend the log that was published before: Publish never signs it. ctx bounds
// the wait.
func (l *Log) Publish(ctx context.Context, index uint64) ([]byte, error) {
	if err := l.pub.lock(ctx); err != nil {
		return nil, err
	}
	defer l.pub.unlock()
	signed, err := l.publish(ctx, index)
	if err != nil {
		err = fmt.Errorf("publish host log: %w", err)
	}
	return signed, err
}

func (l *Log) publish(ctx context.Context, index uint64) ([]byte, error) {
	before, err := l.newest()
	if err != nil {
		return nil, err
	}
	now, err := l.files.state()
	if err != nil {
		return nil, err
	}
	if err := l.files.extends(ctx, before.tree(), now); err != nil {
		return nil, err
	}
	if index >= now.Size {
		return nil, fmt.Errorf("%w: entry %d of %d", ErrNotFound, index, now.Size)
	}
	if err := l.keep(before); err != nil {
		return nil, err
	}
	if index < before.Size && l.witnessed(before.Note) {
		return before.Note, nil
	}
	signed, quorum := l.sign(ctx, now)
	if len(signed) == 0 {
		return nil, quorum
	}
	after, err := l.keys().open(signed)
	if err != nil {
		return nil, fmt.Errorf("the checkpoint that was just signed: %w", err)
	}
	if err := durable.Replace(filepath.Join(l.o.Dir, "checkpoint"), signed, 0o600); err != nil {
		return nil, err
	}
	if err := l.kept.add(after); err != nil {
		return nil, err
	}
	l.files.prune(before.Size)
	return signed, quorum
}

func (l *Log) keys() keys { return l.kept.keys }

func (l *Log) witnessed(signed []byte) bool {
	return l.o.Witnesses == nil || l.o.Witnesses.Satisfied(signed)
}

// newest returns the last published checkpoint, from the checkpoint file or DIR.checkpoints.
func (l *Log) newest() (Checkpoint, error) {
	last, err := l.kept.last()
	if err != nil {
		return Checkpoint{}, err
	}
	file, err := l.files.published(l.keys())
	if err != nil {
		return Checkpoint{}, err
	}
	if file.Note == nil {
		return last, nil
	}
	if err := file.follows(last); errors.Is(err, ErrRolledBack) {
		l.o.Warn(err) // the kept one is newer; the next publication replaces the file
		return last, nil
	} else if err != nil {
		return Checkpoint{}, err
	}
	return file, nil
}

// keep stores a checkpoint if a process was killed between publishing it and storing it.
func (l *Log) keep(c Checkpoint) error {
	last, err := l.kept.last()
	if err != nil || c.Note == nil || string(last.Note) == string(c.Note) {
		return err
	}
	return l.kept.add(c)
}

// extends checks that the tiles form a tree that extends before and is equal to now.
func (f files) extends(ctx context.Context, before, now tree) error {
	if now.Size < before.Size {
		return fmt.Errorf("%w: it has %d entries, %d were published", ErrRolledBack, now.Size, before.Size)
	}
	root, err := f.root(ctx, now.Size)
	if err != nil {
		return err
	}
	if root != now.Root {
		return fmt.Errorf("%w: their root at %d entries is %s, want %s", ErrTilesAltered, now.Size, root, now.Root)
	}
	if before.Size == 0 {
		return nil
	}
	path, err := f.consistency(ctx, before.Size, now.Size)
	if err != nil {
		return err
	}
	err = proof.VerifyConsistency(rfc6962.DefaultHasher, before.Size, now.Size, path, before.Root[:], now.Root[:])
	if err != nil {
		return fmt.Errorf("%w: %d entries do not continue the %d that were published: %w", ErrForked, now.Size, before.Size, err)
	}
	return nil
}

// sign returns a checkpoint of t with all signatures that were available. If it returns an error other than Unwitnessed,
// or the log fails closed, it returns no checkpoint.
func (l *Log) sign(ctx context.Context, t tree) ([]byte, error) {
	options := tessera.NewAppendOptions().WithCheckpointSigner(l.files.prove(ctx, l.o.Signer, t.Size), l.o.Others...)
	requests := newWitnessTransport(l.o.Transport)
	if l.o.Witnesses != nil {
		// Tessera fails open, so that it returns the signatures that it has; the code below decides.
		options.WithWitnesses(l.o.Witnesses.Group(), &tessera.WitnessOptions{Timeout: l.o.WitnessTimeout, FailOpen: true})
	}
	publisher := options.CheckpointPublisher(reading{l.reader, l.files}, requests.client())
	signed, err := publisher(ctx, t.Size, t.Root[:])
	if err != nil {
		return nil, err
	}
	if l.o.Witnesses == nil {
		return signed, nil
	}
	refusals := requests.refusals(l.o.Witnesses.Peers(), signed, t.Size)
	if l.o.Witnesses.Satisfied(signed) {
		for _, r := range refusals {
			l.o.Warn(fmt.Errorf("witness %s: %w", r, r.Err))
		}
		return signed, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !l.o.FailOpen || len(signed) == 0 {
		return nil, &Unwitnessed{Refusals: refusals}
	}
	return signed, &Unwitnessed{Published: true, Refusals: refusals}
}

// reading is Tessera's reader with this package's search for tiles.
type reading struct {
	tessera.LogReader
	files files
}

// ReadTile implements tessera.LogReader.
func (r reading) ReadTile(ctx context.Context, level, index uint64, p uint8) ([]byte, error) {
	return r.files.tile(ctx, level, index, p)
}

var (
	_ note.Signer       = onlyEmpty{}
	_ http.RoundTripper = (*witnessTransport)(nil)
)
