package main

import (
	"time"
	_ "time/tzdata" // zones by name, on hosts without a time zone database

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
)

// zoneFlag is the time zone of a command's tables, and of the times in its flags.
type zoneFlag struct {
	Zone string `placeholder:"ZONE" help:"Show times in this zone, and read times without a zone in it: Europe/Berlin, +01:00 or local (default: UTC). JSON stays in UTC."`
}

// location returns the zone; the default is UTC.
func (z zoneFlag) location() (*time.Location, error) {
	zone, err := replay.ParseZone(z.Zone)
	if err != nil {
		return nil, usageError{err}
	}
	return zone, nil
}

// in returns a time with this zone appended, unless it has one.
func (z zoneFlag) in(text string) string { return replay.WithZone(text, z.Zone) }

// span parses the flags --from and --until.
func (z zoneFlag) span(from, until string) (since, to time.Time, err error) {
	since, to, err = replay.ParseSpan(z.in(from), z.in(until))
	if err != nil {
		err = usageError{err}
	}
	return since, to, err
}

// parseKinds parses the flag --kind.
func parseKinds(names []string) ([]audit.Kind, error) {
	kinds, err := audit.ParseKinds(names)
	if err != nil {
		return nil, usageError{err}
	}
	return kinds, nil
}
