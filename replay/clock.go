package replay

import "time"

// Layouts of times in tables.
const (
	clockLayout = "15:04:05.000"
	stampLayout = "2006-01-02 15:04:05"
	zoneLayout  = " MST" // after one of the others
)

// stamp formats t in the zone of o.
func (o Options) stamp(t time.Time, layout string) string {
	if o.Zone == nil {
		return t.UTC().Format(layout)
	}
	return t.In(o.Zone).Format(layout)
}

// zoned is layout, followed by the zone unless that is UTC: a column of times in UTC names it in its head or not at all.
func (o Options) zoned(layout string) string {
	if o.Zone == nil || o.Zone == time.UTC {
		return layout
	}
	return layout + zoneLayout
}

// within reports whether t lies in the time that o shows.
func (o Options) within(t time.Time) bool {
	return (o.From.IsZero() || !t.Before(o.From)) && (o.Until.IsZero() || t.Before(o.Until))
}

// Second returns o for the second of the clock that t lies in.
func (o Options) Second(t time.Time) Options {
	o.From = t.Truncate(time.Second)
	o.Until = o.From.Add(time.Second)
	return o
}

// windowed reports whether o leaves out records by their time.
func (o Options) windowed() bool { return !o.From.IsZero() || !o.Until.IsZero() }
