package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/store"
)

// State is the state of an exporter.
type State string

// The states. Only a process that holds the lock of the name runs, fails or is halted.
const (
	NeverRan State = "never ran"
	Running  State = "running"
	Failing  State = "failing" // the sink does not accept its events, or it cannot read the store
	Halted   State = "halted"  // the sink refuses everything
	Stopped  State = "stopped" // it was closed
	Killed   State = "killed"  // its process ended without closing it
)

// Behind is the part of the feed that an exporter's cursor has not passed, of the runs that its filter selects.
// Records that the filter excludes by kind, observer or severity count until the exporter has read them.
type Behind struct {
	Segments int    `json:"segments"`
	Records  uint64 `json:"records"`
	More     bool   `json:"more,omitempty"` // there are more: counting was stopped
	// Oldest is the time of the first of these records; zero if there is none.
	Oldest time.Time `json:"oldest,omitzero"`
}

// String returns the number of records, "unknown" for nil.
func (b *Behind) String() string {
	switch {
	case b == nil:
		return "unknown"
	case b.More:
		return fmt.Sprintf("over %d records", b.Records)
	case b.Records == 1:
		return "1 record"
	}
	return fmt.Sprintf("%d records", b.Records)
}

// Lag is the age of the first record that the cursor has not passed.
func (b Behind) Lag(now time.Time) time.Duration {
	if b.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(b.Oldest))
}

// Maximum pages of the feed that are counted, and segments of one.
const (
	countedPages = 100
	countedRefs  = 1000
)

// Measure counts the records in src's feed after c.
func Measure(ctx context.Context, src Source, c Cursor, f Filter) (Behind, error) {
	var b Behind
	after := c.Feed
	for range countedPages {
		refs, err := src.Feed(ctx, after, countedRefs)
		if err != nil {
			return b, fmt.Errorf("read the feed: %w", err)
		}
		for _, ref := range refs {
			after = ref.Cursor
			left := c.left(ref)
			if left == 0 || !f.run(ref.Tenant, ref.Run) {
				continue
			}
			if b.Segments == 0 {
				if b.Oldest, err = firstTime(ctx, src, c, ref); err != nil {
					return b, err
				}
			}
			b.Segments++
			b.Records += left
		}
		if len(refs) < countedRefs {
			return b, nil
		}
	}
	b.More = true
	return b, nil
}

// in reports whether the segment is the partly done one.
func (p Part) in(ref store.Ref) bool {
	return p.Tenant == ref.Tenant && p.Run == ref.Run && p.Index == ref.Index
}

// left returns how many records of a segment after the cursor were not passed.
func (c Cursor) left(ref store.Ref) uint64 {
	if !c.Part.in(ref) || c.Part.Seq < ref.First {
		return ref.Count
	}
	if c.Part.Seq >= ref.Last {
		return 0
	}
	return min(ref.Count, ref.Last-c.Part.Seq)
}

// firstTime is the time of the first record of a segment that the cursor has not passed.
func firstTime(ctx context.Context, src Source, c Cursor, ref store.Ref) (time.Time, error) {
	q := store.Query{Tenant: ref.Tenant, Run: ref.Run, AfterSeq: max(ref.First, 1) - 1, Limit: 1}
	if c.Part.in(ref) {
		q.AfterSeq = max(q.AfterSeq, c.Part.Seq)
	}
	for row, err := range src.Records(ctx, q) {
		return row.Time, err
	}
	return time.Time{}, nil // the store no longer has its rows
}

// Status is the status of a sink as seen by other processes.
type Status struct {
	Stats
	State State `json:"state"`
	PID   int   `json:"pid,omitempty"` // of the process that runs it now
	// Behind is counted in the store now; nil if the store could not be read, with the reason in BehindError.
	Behind      *Behind `json:"behind"`
	BehindError string  `json:"behind_error,omitempty"`
}

// Since is when a state began that needs attention: the first failure, or the time of the oldest waiting record. Zero: none.
func (s Status) Since() time.Time {
	if s.State == Failing || s.State == Halted {
		return s.FailingSince
	}
	if s.Behind != nil {
		return s.Behind.Oldest
	}
	return time.Time{}
}

// ReadStatus reads the status of the exporter of this name. The lock, which the kernel
// releases with the process, shows whether it runs; src, which may be nil, how far behind it is. It disturbs no exporter.
func ReadStatus(ctx context.Context, dir, name string, src Source, f Filter) (Status, error) {
	s := Status{State: NeverRan}
	var err error
	s.Stats, err = ReadStats(dir, name)
	ran := !errors.Is(err, fs.ErrNotExist)
	if err != nil && ran {
		return s, fmt.Errorf("read the status of %s: %w", name, err)
	}
	p, err := readProgress(dir, name)
	if err != nil {
		return s, err
	}
	s.Sent, s.Dead = p.Sent, p.Dead
	if p.Delivered.After(s.LastSuccess) {
		s.LastSuccess = p.Delivered
	}
	if s.PID, err = owner(dir, name); err != nil {
		return s, err
	}
	if src != nil {
		if b, err := Measure(ctx, src, p.Cursor, f); err != nil {
			s.BehindError = err.Error()
		} else {
			s.Behind = &b
		}
	}
	failing := !s.FailingSince.IsZero() && (s.Behind == nil || s.Behind.Segments > 0)
	switch {
	case s.PID != 0 && s.Stats.Halted:
		s.State = Halted
	case s.PID != 0 && failing:
		s.State = Failing
	case s.PID != 0:
		s.State = Running
	case ran && s.Stats.Running:
		s.State = Killed
	case ran:
		s.State = Stopped
	}
	s.Stats.Running = s.PID != 0
	return s, nil
}

// owner returns the process that holds the lock of a name; 0: none, -1: unknown.
func owner(dir, name string) (int, error) {
	f, err := regular.OpenFile(filepath.Join(dir, name+lockSuffix), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) // released with f; lock waits longer than that takes
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return 0, fmt.Errorf("ask for the lock of %s: %w", f.Name(), err)
	}
	text := make([]byte, 20)
	n, _ := f.Read(text) // the owner may not have written yet
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil || pid <= 0 {
		return -1, nil
	}
	return pid, nil
}
