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

// Publish returns a checkpoint that covers the entry at index, published if none did yet, and with a quorum if there
// are witnesses. Several concurrent callers are served by one checkpoint.
//
// Without a quorum the error is an *Unwitnessed, and nothing is published; with FailOpen it is
// published and returned beside that error, and the next Publish asks for a quorum again. ErrRolledBack,
// ErrForked and ErrTilesAltered mean that the log is not the one that was published before: it is
// never signed. ctx bounds the wait.
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

// newest returns the last checkpoint that was published, wherever it still stands.
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
		l.o.Warn(err) // the kept one stands; the next publication puts it right
		return last, nil
	} else if err != nil {
		return Checkpoint{}, err
	}
	return file, nil
}

// keep makes up for a process that died between publishing a checkpoint and keeping it.
func (l *Log) keep(c Checkpoint) error {
	last, err := l.kept.last()
	if err != nil || c.Note == nil || string(last.Note) == string(c.Note) {
		return err
	}
	return l.kept.add(c)
}

// extends reports whether the tiles hold a tree that continues before and is now.
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

// sign returns a checkpoint of t with all signatures that it could get. With an error that is not Unwitnessed, or in a
// log that fails closed, it returns none.
func (l *Log) sign(ctx context.Context, t tree) ([]byte, error) {
	options := tessera.NewAppendOptions().WithCheckpointSigner(l.o.Signer, l.o.Others...)
	asked := newAsked(l.o.Transport)
	if l.o.Witnesses != nil {
		// Tessera fails open here so that it hands over what there is; this decides.
		options.WithWitnesses(l.o.Witnesses.Group(), &tessera.WitnessOptions{Timeout: l.o.WitnessTimeout, FailOpen: true})
	}
	publisher := options.CheckpointPublisher(reading{l.reader, l.files}, asked.client())
	signed, err := publisher(ctx, t.Size, t.Root[:])
	if err != nil {
		return nil, err
	}
	if l.o.Witnesses == nil {
		return signed, nil
	}
	refusals := asked.refusals(l.o.Witnesses.Peers(), signed, t.Size)
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

// reading is Tessera's reader with this package's way of finding tiles.
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
	_ http.RoundTripper = (*asked)(nil)
)
