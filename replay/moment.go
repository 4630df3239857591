package replay

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// TimeForms are the forms in which a point in time may be written, for help and errors.
const TimeForms = "2026-11-03, 2026-11-03 14:32[:05] or 2026-11-03T14:32:05Z, in UTC unless a zone follows, such as +01:00 or Europe/Berlin"

// A Moment is a point in time, or a whole day.
type Moment struct {
	From  time.Time // the point, or the first moment of the day
	Until time.Time // the point, or the first moment of the day after
	Day   bool      // it is a whole day
}

// ParseMoment reads a date, which stands for that whole day, a date with a time
// of day, or RFC 3339. They are in UTC unless a zone follows: Z, an offset such
// as +01:00, a name of the time zone database, or local. Where clocks were put
// back, a time of day comes twice: From is the first of the two, Until the
// second. Years are 1970 to 2261, as a store holds them.
func ParseMoment(text string) (Moment, error) {
	w, err := parseWritten(text)
	if err == nil && w.date == "" {
		err = errors.New("it has no date")
	}
	var m Moment
	if err == nil {
		m, err = w.moment(w.date)
	}
	if err == nil && (m.From.Year() < 1970 || m.Until.Year() > 2261) {
		err = errors.New("its year is not between 1970 and 2261")
	}
	if err != nil {
		return Moment{}, fmt.Errorf("%.60q is not a time: %w; write %s", text, err, TimeForms)
	}
	return m, nil
}

// ParseSpan reads both ends of a time, each of which may be empty. until is the
// first moment that does not belong to it: the end of the day if to is a date.
func ParseSpan(from, to string) (since, until time.Time, err error) {
	read := func(text string) (m Moment) {
		if text != "" && err == nil {
			m, err = ParseMoment(text)
		}
		return m
	}
	since, until = read(from).From, read(to).Until
	if err == nil && from != "" && to != "" && !since.Before(until) {
		err = fmt.Errorf("%.60q is not before %.60q", from, to)
	}
	return since, until, err
}

// written is a time as its parts: a date, a time of day or both, and a zone.
type written struct {
	date, clock string
	zone        *time.Location
}

const (
	dateForm  = `(\d{4}-\d\d-\d\d)`
	clockForm = `(\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)`
	zoneForm  = `(?:\s*(Z|[+-]\d\d:?\d\d)|\s+([A-Za-z][A-Za-z0-9_+/-]*))?`
)

var timeForm = regexp.MustCompile(`^(?:` + dateForm + `|(?:` + dateForm + `(?:T|\s+))?` + clockForm + `)` + zoneForm + `$`)

func parseWritten(text string) (written, error) {
	found := timeForm.FindStringSubmatch(strings.TrimSpace(text))
	if found == nil {
		return written{}, errors.New("it has another form")
	}
	zone, err := ParseZone(found[4] + found[5])
	return written{date: found[1] + found[2], clock: found[3], zone: zone}, err
}

// WithZone returns text with a zone behind it, if it is a time in one of TimeForms, or a time of day, that names none.
func WithZone(text, zone string) string {
	if found := timeForm.FindStringSubmatch(strings.TrimSpace(text)); zone == "" || found == nil || found[4]+found[5] != "" {
		return text
	}
	return text + " " + zone
}

// ParseZone reads a zone: Z, an offset such as +01:00, a name of the time zone database, or local. An empty one is UTC.
func ParseZone(name string) (*time.Location, error) {
	switch name {
	case "", "Z":
		return time.UTC, nil
	case "local":
		return time.Local, nil
	}
	for _, layout := range []string{"-07:00", "-0700"} {
		if t, err := time.Parse(layout, name); err == nil {
			_, offset := t.Zone()
			return time.FixedZone(name, offset), nil
		}
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%.40q is not a time zone", name)
	}
	return zone, nil
}

// moment is w on a date.
func (w written) moment(date string) (Moment, error) {
	clock := w.clock
	switch strings.Count(clock, ":") {
	case 0:
		clock = "00:00:00"
	case 1:
		clock += ":00"
	}
	wall, err := time.Parse("2006-01-02 15:04:05", date+" "+clock) // a fraction is accepted after seconds
	if err != nil {
		return Moment{}, errors.New("no such day or time of day")
	}
	if w.clock == "" {
		return Moment{From: midnight(wall, w.zone), Until: midnight(wall.AddDate(0, 0, 1), w.zone), Day: true}, nil
	}
	return inZone(wall, w.zone)
}

// midnight is when a day begins in a zone; if the clocks are put forward at midnight, it is that moment.
func midnight(day time.Time, zone *time.Location) time.Time {
	if m, err := inZone(day, zone); err == nil {
		return m.From
	}
	_, before := day.Add(-24 * time.Hour).In(zone).Zone()
	return day.Add(-time.Duration(before) * time.Second)
}

// inZone finds when the clocks of a zone show what wall, in UTC, shows: once, or twice where they were put back.
func inZone(wall time.Time, zone *time.Location) (Moment, error) {
	var m Moment
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // the offsets before and after a change
		_, offset := wall.Add(near).In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		if _, there := t.In(zone).Zone(); there != offset {
			continue
		}
		if m.From.IsZero() || t.Before(m.From) {
			m.From = t
		}
		if t.After(m.Until) {
			m.Until = t
		}
	}
	if m.From.IsZero() {
		return m, fmt.Errorf("the clocks of %s were put forward over it", zone)
	}
	return m, nil
}
