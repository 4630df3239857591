package command

import (
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/replay"
)

// ZoneFlag is the time zone of a command's tables, and of the times in its flags.
type ZoneFlag struct {
	Zone string `json:",omitempty" placeholder:"ZONE" help:"Show times in this zone, and read times without a zone in it: Europe/Berlin, +01:00 or local (default: UTC). JSON stays in UTC."`
}

// Location returns the zone; the default is UTC.
func (z ZoneFlag) Location() (*time.Location, error) {
	zone, err := replay.ParseZone(z.Zone)
	if err != nil {
		return nil, Usage(err)
	}
	return zone, nil
}

// In returns a time with this zone appended, unless it has one.
func (z ZoneFlag) In(text string) string { return replay.WithZone(text, z.Zone) }

// Span parses the flags --from and --until.
func (z ZoneFlag) Span(from, until string) (since, to time.Time, err error) {
	since, to, err = replay.ParseSpan(z.In(from), z.In(until))
	if err != nil {
		err = Usage(err)
	}
	return since, to, err
}

// ParseKinds parses the flag --kind.
func ParseKinds(names []string) ([]audit.Kind, error) {
	kinds, err := audit.ParseKinds(names)
	if err != nil {
		return nil, Usage(err)
	}
	return kinds, nil
}
