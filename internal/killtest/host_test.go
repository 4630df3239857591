package killtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/hostlog"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/ship"
	"github.com/custody-project/custody/store"
)

// machine is a process that writes a run and ships it, and ships what the ones
// before it left.
type machine struct {
	runs   string // directory of runs
	signer note.Signer
	log    *hostlog.Log
	remote *ship.Remote // set once connected is closed

	connected chan struct{}
	spool     int64        // bytes that may wait for the store; 0: any
	written   atomic.Int64 // bytes of records
	published atomic.Int64 // and how many of them the transport has
}

const hostName = "custody-killtest"

// frameOverhead is what the log adds to a record: magic, length, checksum, a zero, salt.
const frameOverhead = 29

func hostRole(ctx context.Context) error {
	signer, err := note.NewSigner(os.Getenv("CUSTODY_TORTURE_KEY"))
	if err != nil {
		return err
	}
	tidy := os.Getenv("CUSTODY_TORTURE_TIDY") != ""
	dial := ctx
	if tidy {
		dial = context.Background()
	}
	h := &machine{runs: os.Getenv("CUSTODY_TORTURE_RUNS"), signer: signer, connected: make(chan struct{})}
	h.spool, _ = strconv.ParseInt(os.Getenv("CUSTODY_TORTURE_SPOOL"), 10, 64)
	verifier, err := note.NewVerifier(os.Getenv("CUSTODY_TORTURE_PUBLIC"))
	if err != nil {
		return err
	}
	h.log, err = hostlog.Open(context.Background(), hostlog.Options{Dir: logDir(h.runs), Signer: signer, Verifier: verifier})
	if err != nil {
		return err
	}
	var shipping sync.WaitGroup
	failed := make(chan error, 3)
	shipping.Go(func() {
		defer close(h.connected)
		var err error
		if h.remote, err = ship.Dial(context.WithoutCancel(dial), natsConfig()); err != nil {
			failed <- err
			return
		}
		failed <- h.shipOld()
	})
	if !tidy {
		failed <- h.write(ctx)
	}
	shipping.Wait()
	h.remote.Close()
	failed <- h.log.Close(context.Background())
	close(failed)
	return errors.Join(<-failed, <-failed, <-failed)
}

// shipOld closes the runs of dead processes and ships what was not shipped.
func (h *machine) shipOld() error {
	entries, err := os.ReadDir(h.runs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		dir := filepath.Join(h.runs, e.Name())
		if _, err := os.Stat(filepath.Join(dir, "shipped")); err == nil || wal.Locked(dir) || !begun(dir) {
			continue
		}
		err := h.recover(dir)
		if errors.Is(err, wal.ErrLocked) || errors.Is(err, os.ErrNotExist) {
			continue // it lives, or died before it had written anything
		}
		if err == nil {
			err = h.ship(context.Background(), dir, closed())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return nil
}

// begun reports whether anything of a run was written. If not, its process may still be creating the directory.
func begun(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return wal.IsFile(e.Name()) })
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (h *machine) options(dir string) wal.Options {
	return wal.Options{Run: filepath.Base(dir), Sealer: statement.NewSealer(h.signer, statement.Facts{}), SegmentAge: 100 * time.Millisecond}
}

func (h *machine) recover(dir string) error {
	l, _, err := wal.Recover(context.Background(), dir, h.options(dir))
	if errors.Is(err, wal.ErrFinished) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.Close(context.Background(), wal.Interrupted)
}

// write records events of a new run until ctx ends.
func (h *machine) write(ctx context.Context) error {
	dir := filepath.Join(h.runs, fmt.Sprintf("r-%d", time.Now().UnixNano()))
	o := h.options(dir)
	o.Mode, o.BufferBytes = wal.Mode(os.Getenv("CUSTODY_TORTURE_MODE")), 64<<10
	o.Room = h.room
	o.OnCommit = func(_, bytes int, _ time.Duration) { h.written.Add(int64(bytes)) }
	o.OnStall = func(err error) { fmt.Println("stalled", err) }
	o.OnResume = func() { fmt.Println("resumed") }
	l, err := wal.Create(dir, o)
	if err != nil {
		return err
	}
	fmt.Printf("run %s\n", filepath.Base(dir))
	stop, shipped := make(chan struct{}), make(chan error, 1)
	go func() {
		<-h.connected
		shipped <- h.ship(context.Background(), dir, stop)
	}()
	if err := record(ctx, audit.NewRecorder(l, redact.New(make([]byte, 32)))); err != nil {
		return err
	}
	err = l.Close(context.Background(), wal.Sealed)
	close(stop)
	return errors.Join(err, <-shipped)
}

// room says no while more than the spool holds waits for the store.
func (h *machine) room() error {
	if h.spool == 0 {
		return nil
	}
	waiting := h.written.Load() - h.published.Load()
	select {
	case <-h.connected:
		waiting += h.remote.Stats().Bytes
	default:
	}
	if waiting > h.spool {
		return errors.New("the spool is full")
	}
	return nil
}

// record says of each event that it is durable, once it is, or that it was dropped.
func record(ctx context.Context, rec *audit.Recorder) error {
	for n := 0; ctx.Err() == nil; n += 8 {
		seqs := map[int]uint64{}
		var err error
		for i := n; i < n+8; i++ {
			put := rec.Post
			if i == n+7 {
				put = rec.Record
			}
			// A strict log that is stalled lets no one go on, and the end comes in spite of that.
			seqs[i], err = put(ctx, numbered(i))
			switch {
			case errors.Is(err, wal.ErrDropped):
				fmt.Printf("dropped %d %d\n", seqs[i], i)
				delete(seqs, i)
			case errors.Is(err, wal.ErrStalled), ctx.Err() != nil:
			case err != nil:
				return err
			}
		}
		if err == nil {
			for i, seq := range seqs {
				fmt.Printf("acked %d %d\n", seq, i)
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func numbered(n int) audit.Event {
	return audit.Event{Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{
		Stream: "stdout", Offset: int64(n), Text: audit.Text(fmt.Sprintf("line %d of what a command says\n", n)),
	}}
}

// ship publishes sealed segments until stop is closed and all are in the store.
func (h *machine) ship(ctx context.Context, dir string, stop <-chan struct{}) error {
	next := 0
	for last := false; ; {
		files, err := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix))
		if err != nil {
			return err
		}
		for ; next < len(files); next++ {
			seg, err := segmentOf(dir, files[next])
			if err != nil {
				return err
			}
			if err := h.witness(ctx, seg); err != nil {
				return err
			}
			if err := h.remote.Publish(ctx, seg); err != nil {
				return err
			}
			for _, f := range seg.Frames {
				h.published.Add(int64(len(f.Body) + frameOverhead))
			}
		}
		if last {
			break
		}
		select {
		case <-stop:
			last = true
		case <-time.After(30 * time.Millisecond):
		}
	}
	if err := h.remote.Drain(ctx); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "shipped"), nil, 0o600)
}

// witness puts a manifest under a checkpoint of the host's log.
func (h *machine) witness(ctx context.Context, seg store.Segment) error {
	index, err := h.log.Add(ctx, statement.ManifestLeaf(seg.Run, seg.Index, statement.Digest(seg.Manifest)))
	if err == nil {
		_, err = h.log.Publish(ctx, index)
	}
	return err
}

// logDir is where the host's log stands, beside the runs.
func logDir(runs string) string { return filepath.Join(filepath.Dir(runs), "log") }

func segmentOf(dir, manifest string) (store.Segment, error) {
	signed, err := os.ReadFile(manifest)
	if err != nil {
		return store.Segment{}, err
	}
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return store.Segment{}, err
	}
	m, err := statement.ParseManifest(unverified.Note.Text)
	if err != nil {
		return store.Segment{}, err
	}
	seg := store.Segment{Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Root: m.Root, Manifest: signed}
	if m.Count == 0 {
		return seg, nil
	}
	for f, err := range wal.ReadSegment(filepath.Join(dir, wal.FileName(m.First, wal.SegmentSuffix))) {
		if err != nil {
			return store.Segment{}, err
		}
		seg.Frames = append(seg.Frames, store.Frame{Seq: f.Seq, Salt: f.Salt, Body: f.Bytes})
	}
	return seg, nil
}
