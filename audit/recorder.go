package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/redact"
)

// Log is where sealed events go: the one thing that gives seqs.
type Log interface {
	// Append takes an event in the order of calls. It waits while the log's buffer is full.
	Append(ctx context.Context, s redact.Sealed) (seq uint64, err error)
	// Sync returns when the event seq is durable.
	Sync(ctx context.Context, seq uint64) error
}

// Errors of a Recorder.
var (
	// ErrInvalid is a mistake of the caller: nothing was recorded.
	ErrInvalid = errors.New("invalid event")
	// ErrWithheld means that the event could not be redacted and encoded, or was too long, and that a
	// gap event stands in its place.
	ErrWithheld = errors.New("event withheld from the record")
)

// maxEvent is the longest sealed event in bytes: what fits into a frame of
// audit/wal (4 MiB) with the head that the log adds.
const maxEvent = 4<<20 - 1<<10

// Recorder is the only way into the record: it checks an event, redacts it,
// encodes it once and appends it to the log. It is safe for concurrent use; the
// order of the record is the order in which the log took the events.
type Recorder struct {
	log     Log
	red     *redact.Redactor
	sighted Sighted
	posted  Posted
}

// Sighted is called with an event in which values were masked, once it has its place, and the names of those values. It
// is called before Post returns and must not block.
type Sighted func(kind Kind, step string, names []string, seq uint64)

// Posted is called with each event that has its place, as it was redacted. It is called before Post returns
// and must not wait for anything, or change the event.
type Posted func(ev Event, seq uint64)

// NewRecorder returns a Recorder that redacts with r.
func NewRecorder(log Log, r *redact.Redactor) *Recorder {
	return &Recorder{log: log, red: r}
}

// OnSighted sets the function that is called with masked values; it is called before the first event, if at all.
func (r *Recorder) OnSighted(f Sighted) { r.sighted = f }

// OnPosted has f be called with each event; it is called before the first event, if at all.
func (r *Recorder) OnPosted(f Posted) { r.posted = f }

// Record returns when the event is durable. The event's payload is redacted in
// place: the caller hands it over. Time is filled in if it is zero.
func (r *Recorder) Record(ctx context.Context, ev Event) (seq uint64, err error) {
	seq, err = r.Post(ctx, ev)
	if err != nil && !errors.Is(err, ErrWithheld) {
		return seq, err
	}
	return seq, errors.Join(err, r.log.Sync(ctx, seq))
}

// Post returns when the event is accepted; it is durable with the log's next
// commit. The payload is handed over as with Record. With ErrWithheld, seq is that of
// the gap event.
func (r *Recorder) Post(ctx context.Context, ev Event) (seq uint64, err error) {
	if err := ev.check(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	ev.Time = ev.Time.UTC()
	sealed, err := r.seal(&ev)
	if err != nil {
		return r.withhold(ctx, ev, err)
	}
	seq, err = r.log.Append(ctx, sealed)
	if names := sealed.Found(); len(names) > 0 && r.sighted != nil {
		r.sighted(ev.Kind, ev.Step, names, seq)
	}
	if r.posted != nil && err == nil {
		r.posted(ev, seq)
	}
	return seq, err
}

// seal redacts ev. The end of a truncated argv can be the beginning of a secret.
func (r *Recorder) seal(ev *Event) (redact.Sealed, error) {
	if ev.Exec != nil && ev.Exec.Truncated && len(ev.Exec.Argv) > 0 {
		last := &ev.Exec.Argv[len(ev.Exec.Argv)-1]
		*last = Text(r.red.Cut(string(*last)))
	}
	sealed, err := r.red.Seal(ev)
	if err == nil && len(sealed.Bytes()) > maxEvent {
		err = fmt.Errorf("event of %d bytes, at most %d", len(sealed.Bytes()), maxEvent)
	}
	return sealed, err
}

// withhold records that an event is missing. The cause is kept out of the
// record: an encoder's error may quote what it could not encode.
func (r *Recorder) withhold(ctx context.Context, ev Event, cause error) (uint64, error) {
	gap := Event{Time: time.Now().UTC(), Observer: Host, Kind: KindGap, Gap: &Gap{
		Stage: StageRedact, What: string(ev.Kind), Count: 1,
		Cause: "the event could not be redacted and encoded, or was too long",
	}}
	sealed, err := r.red.Seal(&gap)
	if err != nil {
		return 0, fmt.Errorf("record gap: %w", errors.Join(err, cause))
	}
	seq, err := r.log.Append(ctx, sealed)
	if err != nil {
		return seq, fmt.Errorf("record gap: %w", errors.Join(err, cause))
	}
	return seq, fmt.Errorf("%w: %w", ErrWithheld, cause)
}

// check reports whether ev has an observer and exactly the payload of its kind.
func (ev *Event) check() error {
	if ev.Observer != Host && ev.Observer != Guest {
		return fmt.Errorf("observer %q, want %q or %q", ev.Observer, Host, Guest)
	}
	return ev.OwnPayload()
}
