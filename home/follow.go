package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/audit/wal"
)

// pollEvery is how often a live run's directory is looked at for sealed
// segments, which come once a second at the most often.
const pollEvery = 200 * time.Millisecond

// shippedFile in a run's directory says that the store has the whole run.
const shippedFile = "shipped"

// follower reads a run's sealed segments in order, each once.
type follower struct {
	home   *Home
	run    string
	next   uint64 // index of the next segment
	closed bool   // the closing manifest was read
}

// each hands over the segments that were sealed since the last call.
func (f *follower) each(ctx context.Context, take func(context.Context, store.Segment) error) error {
	dir := f.home.RunDir(f.run)
	files, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
	if err != nil {
		return err
	}
	for i := f.next; i < uint64(len(files)); i++ {
		seg, closing, err := f.home.readSegment(dir, files[i])
		if err != nil {
			return fmt.Errorf("run %s: %s: %w", f.run, filepath.Base(files[i]), err)
		}
		if err := take(ctx, seg); err != nil {
			return err
		}
		f.next, f.closed = i+1, closing != wal.Open
	}
	return nil
}

// wait returns after a while, and true when it was told to stop.
func (f *follower) wait(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	case <-time.After(pollEvery):
		return false
	}
}

func (f *follower) markShipped() error {
	if !f.closed {
		return nil
	}
	return os.WriteFile(filepath.Join(f.home.RunDir(f.run), shippedFile), nil, 0o600)
}

// readSegment reads a sealed segment back from the log, as the transport takes it.
func (h *Home) readSegment(dir, manifest string) (store.Segment, wal.Closing, error) {
	signed, err := os.ReadFile(manifest)
	if err != nil {
		return store.Segment{}, "", err
	}
	m, err := h.openManifest(signed)
	if err != nil {
		return store.Segment{}, "", err
	}
	seg := store.Segment{Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Root: m.Root, Manifest: signed}
	if m.Count == 0 {
		return seg, m.Closing, nil
	}
	seg.Frames = make([]store.Frame, 0, m.Count)
	for frame, err := range wal.ReadSegment(filepath.Join(dir, wal.FileName(m.First, wal.SegmentSuffix))) {
		if err != nil {
			return store.Segment{}, "", err
		}
		seg.Frames = append(seg.Frames, store.Frame{Seq: frame.Seq, Salt: frame.Salt, Body: frame.Bytes})
	}
	return seg, m.Closing, nil
}

// openManifest checks a manifest's signature with the host's key.
func (h *Home) openManifest(signed []byte) (proof.Manifest, error) {
	key, err := h.Key()
	if err != nil {
		return proof.Manifest{}, err
	}
	verifier, err := key.Verifier()
	if err != nil {
		return proof.Manifest{}, err
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return proof.Manifest{}, err
	}
	return proof.ParseManifest(n.Text)
}

// HasWhole says whether the store was given the whole run.
func (h *Home) HasWhole(run string) bool {
	_, err := os.Stat(filepath.Join(h.RunDir(run), shippedFile))
	return !errors.Is(err, fs.ErrNotExist)
}
