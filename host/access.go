package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/store"
)

// AccessLog records each access to records through this process, and the notes made on them, in a run of its own, which
// is hashed, signed, shipped and verified like every run. It begins with the first access; each day begins another one.
//
//	none -- first Record --> open -- older than a day, at a Record --> another is open, this one closes
//	                          `----- Close ---------------------------> closed
type AccessLog struct {
	host     *Host
	redactor *redact.Redactor
	version  string

	mu     sync.RWMutex // guards run and closed; held for reading while a record is written
	run    *Run
	began  time.Time
	closed bool

	closing sync.WaitGroup // of logs that another one has followed
}

// AccessDay is how long one access log goes on.
const AccessDay = 24 * time.Hour

const (
	// accessWait is how long a look waits for a record that cannot be written.
	accessWait = 5 * time.Second
	// accessEnd is how long the end of an access log may take.
	accessEnd = 30 * time.Second
)

var errAccessClosed = errors.New("the access log is closed")

// AccessLog returns the log of accesses to records; version is the program's. The caller closes it.
func (h *Host) AccessLog(r *redact.Redactor, version string) *AccessLog {
	return &AccessLog{host: h, redactor: r, version: version}
}

// Record returns when the look is durable. On an error nothing may be shown.
func (l *AccessLog) Record(ctx context.Context, look audit.Access) error {
	_, _, err := l.record(ctx, &audit.Event{Observer: audit.Host, Kind: audit.KindAccess, Access: &look})
	return err
}

// ErrOtherTenant: the note is on a run of another tenant than the log, where it would not be found.
var ErrOtherTenant = errors.New("only a host of the run's tenant, or of none, can note anything on it")

// Note returns when the note is durable, and how it was recorded: after redaction.
func (l *AccessLog) Note(ctx context.Context, n audit.Note) (audit.Noted, error) {
	if err := n.Check(); err != nil {
		return audit.Noted{}, err
	}
	if own := l.host.config.Tenant; own != "" && own != n.Tenant {
		return audit.Noted{}, fmt.Errorf("%w: the run is of the tenant %q, this host is of %q", ErrOtherTenant, n.Tenant, own)
	}
	n.Tags = slices.Clone(n.Tags) // which the redactor may change
	ev := audit.Event{Observer: audit.Host, Kind: audit.KindNote, Note: &n}
	log, seq, err := l.record(ctx, &ev)
	return audit.Noted{ID: audit.NoteID(log, seq), Time: ev.Time, Note: n}, err
}

// record writes an event into the log of today, and returns its position. It sets the event's time.
func (l *AccessLog) record(ctx context.Context, ev *audit.Event) (log string, seq uint64, _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, accessWait, errors.New("the access log cannot be written"))
	defer cancel()
	for {
		l.mu.RLock()
		if l.closed {
			l.mu.RUnlock()
			return "", 0, errAccessClosed
		}
		if l.run != nil && time.Since(l.began) < AccessDay {
			ev.Time = time.Now().UTC()
			log = l.run.ID
			seq, err := l.run.Record(ctx, *ev)
			l.mu.RUnlock()
			return log, seq, cause(ctx, err)
		}
		l.mu.RUnlock()
		if err := l.next(ctx); err != nil {
			return "", 0, fmt.Errorf("begin an access log: %w", cause(ctx, err))
		}
	}
}

// next has a fresh log follow, unless another caller was first.
func (l *AccessLog) next(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.run != nil && time.Since(l.began) < AccessDay {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // it has waited long enough for others, which could not begin one
	}
	now := time.Now()
	run, err := l.begin(ctx, now)
	if err != nil {
		return err
	}
	if old := l.run; old != nil {
		l.closing.Go(func() { warnOf(l.host, l.end(old)) })
	}
	l.run, l.began = run, now
	return nil
}

func (l *AccessLog) begin(ctx context.Context, now time.Time) (*Run, error) {
	keep := context.WithoutCancel(ctx)
	facts := statement.Facts{Tenant: l.host.config.Tenant, RulesetDigest: l.redactor.Digest()}
	run, err := l.host.Begin(ctx, RunOptions{
		ID: store.AccessPrefix + strings.TrimPrefix(NewRunID(now), sandboxPrefix), Mode: wal.Strict, Facts: facts, Redactor: l.redactor,
		OnStall: func(err error) {
			l.host.warn("records cannot be read: the access log cannot be written: " + err.Error())
		},
		OnResume: func() { l.host.warn("the access log can be written again") },
	})
	if err != nil {
		return nil, err
	}
	start := audit.Lifecycle{Phase: audit.PhaseStart, Tenant: facts.Tenant, Project: "access", RulesetDigest: facts.RulesetDigest,
		Mode: string(wal.Strict), Version: l.version}
	start.Host, _ = os.Hostname()
	// It is not waited for: the looks that follow are durable when it is. So a log that cannot be written yet
	// is there for the next look, and not closed, which would wait for the disk.
	if _, err := run.Post(ctx, lifecycle(start)); err != nil {
		record, _ := run.Close(keep, wal.Interrupted)
		return nil, errors.Join(err, record)
	}
	run.Ship(keep)
	return run, nil
}

func lifecycle(l audit.Lifecycle) audit.Event {
	return audit.Event{Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindRun, Lifecycle: &l}
}

func (l *AccessLog) end(run *Run) error {
	// The caller cannot cancel this, as the log would be left open; on a full disk the next start closes it.
	ctx, cancel := context.WithTimeout(context.Background(), accessEnd)
	defer cancel()
	code := 0
	_, err := run.Record(ctx, lifecycle(audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone, ExitCode: &code}))
	record, stored := run.Close(ctx, wal.Sealed)
	return errors.Join(err, record, stored)
}

// Close ends the log; looks that are being recorded are waited for.
func (l *AccessLog) Close() error {
	l.mu.Lock()
	run := l.run
	l.run, l.closed = nil, true
	l.mu.Unlock()
	l.closing.Wait()
	if run == nil {
		return nil
	}
	return l.end(run)
}

// cause puts why a context ended in the place of that it did.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func warnOf(h *Host, err error) {
	if err != nil {
		h.warn(err.Error())
	}
}
