package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/redact"
)

// Log stores sealed events. Only the Log assigns seqs.
type Log interface {
	// Append adds an event, in the order of calls. It waits while the log's buffer is full.
	Append(ctx context.Context, s redact.Sealed) (seq uint64, err error)
	// Sync returns when the event seq is durable.
	Sync(ctx context.Context, seq uint64) error
}

// Errors of a Recorder.
var (
	// ErrInvalid: the caller passed an invalid event; nothing was recorded.
	ErrInvalid = errors.New("invalid event")
	// ErrWithheld means that the event could not be redacted and encoded, or was too long, and that a
	// gap event was recorded instead.
	ErrWithheld = errors.New("event withheld from the record")
)

// maxEvent is the maximum length of a sealed event in bytes: it must fit into a frame of
// audit/wal (4 MiB) with the head that the log adds.
const maxEvent = 4<<20 - 1<<10

// Recorder is the only way to write to the record: it checks an event, redacts it,
// encodes it once and appends it to the log. It is safe for concurrent use; the
// order of the record is the order in which the log accepted the events.
type Recorder struct {
	log     Log
	red     *redact.Redactor
	sighted Sighted
	posted  Posted
}

// Sighted is called with an event in which values were masked, once it has a seq, and the names of those values. It
// is called before Post returns and must not block.
type Sighted func(kind Kind, step string, names []string, seq uint64)

// Posted is called with each event that has a seq, after redaction. It is called before Post returns
// and must neither block nor change the event.
type Posted func(ev Event, seq uint64)

// NewRecorder returns a Recorder that redacts with r.
func NewRecorder(log Log, r *redact.Redactor) *Recorder {
	return &Recorder{log: log, red: r}
}

// OnSighted sets the function that is called with masked values. It must be called before the first event.
func (r *Recorder) OnSighted(f Sighted) { r.sighted = f }

// OnPosted sets the function that is called with each event. It must be called before the first event.
func (r *Recorder) OnPosted(f Posted) { r.posted = f }

// Record records an event and returns when it is durable. It redacts the event's payload in
// place; the caller must not use the payload afterwards. Time is filled in if it is zero.
func (r *Recorder) Record(ctx context.Context, ev Event) (seq uint64, err error) {
	seq, err = r.Post(ctx, ev)
	if err != nil && !errors.Is(err, ErrWithheld) {
		return seq, err
	}
	return seq, errors.Join(err, r.log.Sync(ctx, seq))
}

// Post returns when the event is accepted; it is durable with the log's next
// commit. As with Record, the caller must not use the payload afterwards. With ErrWithheld, seq is that of
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

// withhold records a gap for an event. The record does not contain the cause:
// an encoder's error may quote the data that it could not encode.
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
