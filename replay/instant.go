package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit/store"
)

// ParseInstant reads a point in a run's time: RFC 3339, a time of day in UTC on
// the run's day (HH:MM, HH:MM:SS, with a fraction if need be; a run that goes
// on past midnight has such a time on its later days), or +DURATION from the
// run's start. now stands in for the end of a run that is still running.
func ParseInstant(text string, run store.Run, now time.Time) (time.Time, error) {
	t, err := parseInstant(strings.TrimSpace(text), run, now)
	if err != nil {
		return time.Time{}, err
	}
	if t.Before(run.Began().Truncate(time.Millisecond)) {
		return time.Time{}, fmt.Errorf("%s is before the run began, at %s", clockOf(t), clockOf(run.Began()))
	}
	// Tables show milliseconds: a time that was read off one includes what happened in it.
	return t.Truncate(time.Millisecond).Add(time.Millisecond - 1), nil
}

func clockOf(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func parseInstant(text string, run store.Run, now time.Time) (time.Time, error) {
	if after, ok := strings.CutPrefix(text, "+"); ok {
		d, err := time.ParseDuration(after)
		if err != nil || d < 0 {
			return time.Time{}, fmt.Errorf("%.40q is not a time from the run's start, like +1.5s or +2m", text)
		}
		return run.Began().Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t.UTC(), nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} { // a fraction is accepted after seconds
		if t, err := time.Parse(layout, text); err == nil {
			return onRunsDay(t, run, now), nil
		}
	}
	return time.Time{}, fmt.Errorf("%.40q is not a time: give RFC 3339, HH:MM[:SS] in UTC, or +1.5s from the run's start", text)
}

// onRunsDay puts a time of day on the first of the run's days that has it within the run.
func onRunsDay(clock time.Time, run store.Run, now time.Time) time.Time {
	began := run.Began().UTC()
	end := now
	if run.End != nil {
		end = *run.End
	}
	midnight := time.Date(began.Year(), began.Month(), began.Day(), 0, 0, 0, 0, time.UTC)
	t := midnight.Add(clock.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)))
	if next := t.AddDate(0, 0, 1); t.Before(began.Truncate(time.Millisecond)) && !next.After(end) {
		return next
	}
	return t
}
