package monitor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
)

// Readers let a witness read the entries of logs before it cosigns their checkpoints. The zero value has no readers. The
// caller must call Close.
type Readers struct {
	all []*reader
}

// Add opens the reader of a log, with its state in a file, and reads what is already published, since the time during a
// request is short. It logs alarms and errors of that reading, and adds the reader regardless.
func (r *Readers) Add(ctx context.Context, state, where string, keys []note.Verifier, log *slog.Logger) error {
	m, err := OpenAt(state, where, keys)
	if err != nil {
		return err
	}
	added := &reader{keys[0].Name(), m, log}
	r.all = append(r.all, added)
	if report, err := m.Check(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
		added.alarm(ctx, report, err)
	}
	return nil
}

// ByLog returns the readers by the origins of their logs.
func (r *Readers) ByLog() map[string]witness.Reader {
	by := map[string]witness.Reader{}
	for _, one := range r.all {
		by[one.log] = one
	}
	return by
}

// Close closes all readers.
func (r *Readers) Close() error {
	var errs []error
	for _, one := range r.all {
		errs = append(errs, one.monitor.Close())
	}
	return errors.Join(errs...)
}

// reader is a witness.Reader: it objects when the monitor raises an alarm.
type reader struct {
	log     string
	monitor *Monitor
	out     *slog.Logger
}

// Read implements witness.Reader.
func (r *reader) Read(ctx context.Context, signed []byte) error {
	report, err := r.monitor.Follow(ctx, signed)
	if err != nil {
		r.alarm(ctx, report, err)
	}
	if errors.Is(err, ErrAlarm) {
		return fmt.Errorf("%w: %s", witness.ErrObjection, report.Alarms[len(report.Alarms)-1].Name)
	}
	return err
}

// alarm logs the report, for the witness's operator.
func (r *reader) alarm(ctx context.Context, report Report, err error) {
	for _, found := range report.Alarms {
		r.out.ErrorContext(ctx, "alarm", "log", report.Log, "name", found.Name, "detail", found.Detail)
	}
	if len(report.Alarms) == 0 {
		r.out.ErrorContext(ctx, "witness cannot read a log's entries", "log", report.Log, "error", err)
	}
}
