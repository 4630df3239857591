package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// retryEvery is the interval of retries.
const retryEvery = time.Second

// shippedFile in a run's directory marks a run that the store has whole.
const shippedFile = "shipped"

// follower reads a run's sealed segments in order, each once.
type follower struct {
	host     *Host
	run      string
	next     uint64 // index of the next segment
	signer   string // name of the key that signed the last manifest that was read
	closed   bool   // the closing manifest was read
	reported string // the last error that was reported to the user
	sealed   signal // set when this process has sealed a segment of the run; nil: all segments were sealed before
}

// signal wakes one goroutine. Several signals before it wakes count as one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// set wakes the goroutine, or keeps it from waiting the next time.
func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// warn reports to the user why segments are not shipped, once for each reason. Shipping is retried.
func (f *follower) warn(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.reported {
		f.host.warn("run " + f.run + ": " + text)
	}
	f.reported = text
}

// eachSealed calls take with each manifest that was written since the last call, and its file.
func (f *follower) eachSealed(ctx context.Context, take func(m statement.Manifest, signed []byte, file string) error) error {
	files, err := filepath.Glob(filepath.Join(f.host.RunDir(f.run), "*"+wal.ManifestSuffix))
	if err != nil {
		return err
	}
	for i := f.next; i < uint64(len(files)) && err == nil; i++ {
		err = f.one(files[i], take)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(files[i]), err)
		}
		f.next, err = i+1, ctx.Err()
	}
	return err
}

func (f *follower) one(file string, take func(m statement.Manifest, signed []byte, file string) error) error {
	signed, err := regular.ReadFile(file)
	if err != nil {
		return err
	}
	m, signer, err := f.host.RunLogs().openManifest(signed)
	if err != nil {
		return err
	}
	f.signer = signer
	if err := take(m, signed, file); err != nil {
		return err
	}
	f.closed = m.Closing != wal.Open
	return nil
}

// each calls take with each segment that was sealed since the last call.
func (f *follower) each(ctx context.Context, take func(context.Context, store.Segment) error) error {
	return f.eachSealed(ctx, func(m statement.Manifest, signed []byte, file string) error {
		seg, err := f.segment(m, signed, file)
		if err != nil {
			return err
		}
		return take(ctx, seg)
	})
}

// segment reads a sealed segment from the log, in the form that the transport sends.
func (f *follower) segment(m statement.Manifest, signed []byte, file string) (store.Segment, error) {
	seg := store.Segment{
		Tenant: m.Tenant, Host: f.signer, Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Root: m.Root, Manifest: signed,
	}
	if m.Count == 0 {
		return seg, nil
	}
	seg.Frames = make([]store.Frame, 0, m.Count)
	for frame, err := range wal.ReadSegment(filepath.Join(filepath.Dir(file), wal.FileName(m.First, wal.SegmentSuffix))) {
		if err != nil {
			return seg, err
		}
		seg.Frames = append(seg.Frames, frameOf(frame))
	}
	return seg, nil
}

// wait returns when a segment was sealed, or after the given time unless it is 0. It returns true when stop was closed.
func (f *follower) wait(stop <-chan struct{}, after time.Duration) bool {
	var timer <-chan time.Time
	if after > 0 {
		timer = time.After(after)
	}
	select {
	case <-stop:
		return true
	case <-f.sealed:
	case <-timer:
	}
	return false
}

func (f *follower) markShipped() error {
	if !f.closed {
		return nil
	}
	return regular.WriteFile(filepath.Join(f.host.RunDir(f.run), shippedFile), nil, 0o600)
}

// openManifest checks a manifest's signature with the host's keys, and returns the name of the key that signed it.
func (l RunLogs) openManifest(signed []byte) (statement.Manifest, string, error) {
	trusted, err := l.host.Keys().Trusted()
	if err != nil {
		return statement.Manifest{}, "", err
	}
	n, err := note.Open(signed, trusted)
	if err != nil {
		return statement.Manifest{}, "", err
	}
	m, err := statement.ParseManifest(n.Text)
	return m, n.Sigs[0].Name, err
}

// tenantOf returns the tenant of a run, which its manifests sign. It can differ from the tenant that host.yaml
// names now. Before there is a manifest it is that of the run's facts; without any it is host.yaml's.
func (l RunLogs) tenantOf(run string) string {
	if m, ok := l.firstManifest(l.host.RunDir(run)); ok {
		return m.Tenant
	}
	if f, err := l.facts(run); err == nil {
		return f.Tenant
	}
	return l.host.config.Tenant
}

// firstManifest returns the first manifest in a run's directory, if this host signed it.
func (l RunLogs) firstManifest(dir string) (statement.Manifest, bool) {
	files, _ := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix)) // the pattern is valid
	if len(files) == 0 {
		return statement.Manifest{}, false
	}
	signed, err := regular.ReadFile(files[0])
	if err != nil {
		return statement.Manifest{}, false
	}
	m, _, err := l.openManifest(signed)
	return m, err == nil
}

// HasWhole reports whether the store has the whole run.
func (l RunLogs) HasWhole(run string) bool {
	_, err := os.Stat(filepath.Join(l.host.RunDir(run), shippedFile))
	return !errors.Is(err, fs.ErrNotExist)
}
