package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/store"
)

// InstantForms are the forms in which a point in a run's time may be written, beside TimeForms.
const InstantForms = "14:32[:05] of the run's day, or +1.5s from its start"

// ParseInstant reads a point in a run's time: what ParseMoment reads, a time of
// day on the run's day (HH:MM, HH:MM:SS, with a fraction if need be, in UTC
// unless a zone follows; a run that goes on past midnight has such a time on its
// later days), or +DURATION from the run's start. Of a date it is the day's last
// moment. now stands in for the end of a run that is still running.
func ParseInstant(text string, run store.Run, now time.Time) (time.Time, error) {
	m, err := parseInstant(text, run, now)
	if err != nil {
		return time.Time{}, err
	}
	if m.Day {
		return m.Until.Add(-1), notBefore(m.Until, run)
	}
	// Tables show milliseconds: a time that was read off one includes what happened in it.
	t := m.From.Truncate(time.Millisecond)
	return t.Add(time.Millisecond - 1), notBefore(m.From, run)
}

// ParseRunSpan reads both ends of a part of a run, each as ParseInstant reads it
// or empty. until is the first moment that does not belong to it: the end of
// the millisecond, or of the day, that to names.
func ParseRunSpan(from, to string, run store.Run, now time.Time) (since, until time.Time, err error) {
	if from != "" {
		m, err := parseInstant(from, run, now)
		if err != nil {
			return since, until, err
		}
		since = m.From.Truncate(time.Millisecond)
	}
	if to != "" {
		t, err := ParseInstant(to, run, now)
		if err != nil {
			return since, until, err
		}
		until = t.Add(1)
	}
	if from != "" && to != "" && !since.Before(until) {
		err = fmt.Errorf("%.60q is not before %.60q", from, to)
	}
	return since, until, err
}

func notBefore(t time.Time, run store.Run) error {
	if t.Before(run.Began().Truncate(time.Millisecond)) {
		return fmt.Errorf("%s is before the run began, at %s", clockOf(t), clockOf(run.Began()))
	}
	return nil
}

func clockOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func parseInstant(text string, run store.Run, now time.Time) (Moment, error) {
	if after, ok := strings.CutPrefix(strings.TrimSpace(text), "+"); ok {
		d, err := time.ParseDuration(after)
		if err != nil || d < 0 {
			return Moment{}, fmt.Errorf("%.40q is not a time from the run's start, like +1.5s or +2m", text)
		}
		t := run.Began().Add(d)
		return Moment{From: t, Until: t}, nil
	}
	if w, err := parseWritten(text); err == nil && w.date == "" {
		m, err := w.onRunsDay(run, now)
		if err != nil {
			return m, fmt.Errorf("%.60q is not a time: %w", text, err)
		}
		return m, nil
	}
	m, err := ParseMoment(text)
	if err != nil {
		return m, fmt.Errorf("%w; or %s", err, InstantForms)
	}
	return m, nil
}

// onRunsDay puts a time of day on the first of the run's days that has it within the run.
func (w written) onRunsDay(run store.Run, now time.Time) (Moment, error) {
	began := run.Began().In(w.zone)
	end := now
	if run.End != nil {
		end = *run.End
	}
	m, err := w.moment(began.Format(time.DateOnly))
	if err == nil && m.From.Before(began.Truncate(time.Millisecond)) {
		if next, err := w.moment(began.AddDate(0, 0, 1).Format(time.DateOnly)); err == nil && !next.From.After(end) {
			return next, nil
		}
	}
	return m, err
}
