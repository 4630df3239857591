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

// AccessLog records each access to records through this process, and the notes made on them. It writes them into a
// separate run, which is hashed, signed, shipped and verified like every run. The first access opens the log. The first
// access after a day opens the next one.
//
//	none -- first Record --> open -- older than a day, at a Record --> the next is open, this one is closed
//	                          `----- Close ---------------------------> closed
type AccessLog struct {
	host     *Host
	redactor *redact.Redactor
	version  string

	mu     sync.RWMutex // guards run and closed; held for reading while a record is written
	run    *Run
	began  time.Time
	closed bool

	closing sync.WaitGroup // of logs that were replaced by a newer one
}

// AccessDay is the time after which an access log is replaced by the next one.
const AccessDay = 24 * time.Hour

const (
	// accessWait bounds the time for which an access waits until its record is written.
	accessWait = 5 * time.Second
	// accessEnd bounds the time for closing an access log.
	accessEnd = 30 * time.Second
)

var errAccessClosed = errors.New("the access log is closed")

// AccessLog returns the log of accesses to records; version is the version of the program. The caller closes it.
func (h *Host) AccessLog(r *redact.Redactor, version string) *AccessLog {
	return &AccessLog{host: h, redactor: r, version: version}
}

// Record returns when the record of the access is durable. After an error the caller must not show the data.
func (l *AccessLog) Record(ctx context.Context, access audit.Access) error {
	_, _, err := l.record(ctx, &audit.Event{Observer: audit.Host, Kind: audit.KindAccess, Access: &access})
	return err
}

// ErrOtherTenant reports a note on a run of another tenant than the log's. The other tenant could not find the note.
var ErrOtherTenant = errors.New("only a host of the run's tenant, or of no tenant, can add a note to it")

// Note returns the note as it was recorded, after redaction, when it is durable.
func (l *AccessLog) Note(ctx context.Context, n audit.Note) (audit.Noted, error) {
	if err := n.Check(); err != nil {
		return audit.Noted{}, err
	}
	if own := l.host.config.Tenant; own != "" && own != n.Tenant {
		return audit.Noted{}, fmt.Errorf("%w: the run is of the tenant %q, this host is of %q", ErrOtherTenant, n.Tenant, own)
	}
	n.Tags = slices.Clone(n.Tags) // the redactor may change them
	ev := audit.Event{Observer: audit.Host, Kind: audit.KindNote, Note: &n}
	log, seq, err := l.record(ctx, &ev)
	return audit.Noted{ID: audit.NoteID(log, seq), Time: ev.Time, Note: n}, err
}

// record writes an event into the current log, and returns its position. It sets the event's time.
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

// next opens a new log, unless another caller already did.
func (l *AccessLog) next(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.run != nil && time.Since(l.began) < AccessDay {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // it waited for callers that could not open one, and its time is over
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
		ID: store.AccessPrefix + strings.TrimPrefix(NewRunID(now), SandboxPrefix), Mode: wal.Strict, Facts: facts, Redactor: l.redactor,
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
	// It does not wait for this event: a later record is durable only when this one is. So if the log cannot be written
	// yet, the next access can use it. Waiting here would fail, and closing the log would wait for the disk.
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
	// The caller cannot cancel this: it would leave the log open. If the disk is full, the next start closes it.
	ctx, cancel := context.WithTimeout(context.Background(), accessEnd)
	defer cancel()
	code := 0
	_, err := run.Record(ctx, lifecycle(audit.Lifecycle{Phase: audit.PhaseEnd, Status: audit.StatusDone, ExitCode: &code}))
	record, stored := run.Close(ctx, wal.Sealed)
	return errors.Join(err, record, stored)
}

// Close waits for the accesses that are being recorded, and closes the log.
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

// cause replaces the error of a context that ended with the cause of its end.
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
