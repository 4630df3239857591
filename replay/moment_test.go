package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/store"
)

func TestParseMoment(t *testing.T) {
	for text, want := range map[string][2]string{ // until is empty where it is the same
		"2026-11-03":                              {"2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"},
		" 2026-11-03 ":                            {"2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"},
		"2026-11-03Z":                             {"2026-11-03T00:00:00Z", "2026-11-04T00:00:00Z"},
		"2026-11-03 +01:00":                       {"2026-11-02T23:00:00Z", "2026-11-03T23:00:00Z"},
		"2026-11-03 Europe/Berlin":                {"2026-11-02T23:00:00Z", "2026-11-03T23:00:00Z"},
		"2026-12-31":                              {"2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"},
		"2028-02-29":                              {"2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"},
		"2026-11-03 14:32":                        {"2026-11-03T14:32:00Z"},
		"2026-11-03 14:32:05":                     {"2026-11-03T14:32:05Z"},
		"2026-11-03T14:32:05.25":                  {"2026-11-03T14:32:05.25Z"},
		"2026-11-03T14:32:05Z":                    {"2026-11-03T14:32:05Z"},
		"2026-11-03T14:32:05.123456789+01:00":     {"2026-11-03T13:32:05.123456789Z"},
		"2026-11-03 14:32 -0330":                  {"2026-11-03T18:02:00Z"},
		"2026-11-03 14:32 UTC":                    {"2026-11-03T14:32:00Z"},
		"2026-11-03 14:32 Europe/Berlin":          {"2026-11-03T13:32:00Z"},
		"2026-07-03 14:32 Europe/Berlin":          {"2026-07-03T12:32:00Z"},
		"2026-07-03 14:32 +01:00":                 {"2026-07-03T13:32:00Z"}, // also where local time is Berlin's
		"2026-10-25 02:30 Europe/Berlin":          {"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"},
		"2026-10-25 Europe/Berlin":                {"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		"2026-09-06 America/Santiago":             {"2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"}, // without its first hour
		"2026-11-03 00:00 Pacific/Kiritimati":     {"2026-11-02T10:00:00Z"},
		"1970-01-01":                              {"1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"},
		"2026-11-03 14:32 local":                  {time.Date(2026, 11, 3, 14, 32, 0, 0, time.Local).UTC().Format(time.RFC3339)},
		"2026-04-05 01:45 Australia/Lord_Howe":    {"2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"},
		"2026-11-03T14:32:05.999999999-12:00":     {"2026-11-04T02:32:05.999999999Z"},
		"2026-11-03  14:32":                       {"2026-11-03T14:32:00Z"},
		"2026-11-03 14:32 America/Port-au-Prince": {"2026-11-03T19:32:00Z"},
	} {
		until := want[1]
		if until == "" {
			until = want[0]
		}
		m, err := ParseMoment(text)
		if got := [2]string{m.From.UTC().Format(time.RFC3339Nano), m.Until.UTC().Format(time.RFC3339Nano)}; err != nil || got != [2]string{want[0], until} {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "2026", "2026-11", "2026-11-31", "2026-02-29", "2026-13-01", "2026-11-03 24:00", "2026-11-03 1:02", "2026-11-03 12:60", "2026-11-0312:00",
		"2026-11-03 T 12:00", "T12:00", "12:00", "2026-11-03 12:00 Nowhere/City", "2026-11-03 12:00 ../../etc/passwd", "2026-11-03 12:00 /etc/passwd", "2026-11-03 12:00 +25:00", "+1.5s", "03.11.2026", "11/03/2026",
		"1969-12-31", "2262-01-01", "0000-01-01", "9999-01-01T00:00:00Z", "2026-03-29 02:30 Europe/Berlin", "2026-11-03 12:00Europe/Berlin", "2026-11-03\x0012:00", strings.Repeat("2026-11-03 ", 9)} {
		if m, err := ParseMoment(text); err == nil || !strings.Contains(err.Error(), TimeForms) {
			t.Errorf("%q: %v, %v; want an error with the forms", text, m, err)
		}
	}
}

// TestMomentOracle compares times of day in zones with a search through every minute of two days.
func TestMomentOracle(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu"} {
		in, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, day := range []string{"2026-03-29", "2026-04-05", "2026-09-06", "2026-10-04", "2026-10-25"} {
			shown := map[string][]time.Time{} // by wall clock
			noon, _ := time.Parse(time.DateOnly, day)
			for at := noon.Add(-30 * time.Hour); at.Before(noon.Add(60 * time.Hour)); at = at.Add(time.Minute) {
				wall := at.In(in).Format("2006-01-02 15:04")
				shown[wall] = append(shown[wall], at)
			}
			for minute := range 24 * 60 {
				wall := noon.Add(time.Duration(minute) * time.Minute).Format("2006-01-02 15:04")
				m, err := ParseMoment(wall + " " + zone)
				switch want := shown[wall]; {
				case len(want) == 0 && err == nil:
					t.Errorf("%s %s does not exist, and is %v", wall, zone, m)
				case len(want) > 0 && (err != nil || !m.From.Equal(want[0]) || !m.Until.Equal(want[len(want)-1])):
					t.Errorf("%s %s: %v, %v; want %v", wall, zone, m, err, want)
				}
			}
		}
	}
}

func TestParseSpan(t *testing.T) {
	from, to, err := ParseSpan("2026-11-01", "2026-11-01")
	if err != nil || to.Sub(from) != 24*time.Hour {
		t.Errorf("one day: %v to %v, %v", from, to, err)
	}
	if from, to, err = ParseSpan("", ""); err != nil || !from.IsZero() || !to.IsZero() {
		t.Errorf("nothing: %v to %v, %v", from, to, err)
	}
	for _, bad := range [][2]string{{"2026-11-02", "2026-11-01"}, {"2026-11-02 12:00", "2026-11-02 12:00"}, {"x", ""}, {"", "x"}, {"x", "2026-11-02"}} {
		if from, to, err = ParseSpan(bad[0], bad[1]); err == nil {
			t.Errorf("%q: %v to %v", bad, from, to)
		}
	}
}

// TestParseRunSpan: a date may begin before the run, and its end is included; a time includes its millisecond.
func TestParseRunSpan(t *testing.T) {
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	end := day.Add(26 * time.Hour)
	run := store.Run{Start: day.Add(12 * time.Hour), End: &end}
	for text, want := range map[[2]string][2]time.Time{
		{"2026-11-03", "2026-11-03"}:             {day, day.AddDate(0, 0, 1)},
		{"12:00", "12:30:00.5"}:                  {day.Add(12 * time.Hour), day.Add(12*time.Hour + 30*time.Minute + 501*time.Millisecond)},
		{"+1s", ""}:                              {day.Add(12*time.Hour + time.Second), time.Time{}},
		{"13:30 Europe/Berlin", "01:00"}:         {day.Add(12*time.Hour + 30*time.Minute), day.Add(25*time.Hour + time.Millisecond)},
		{"", "2026-11-03 13:30 Europe/Berlin"}:   {time.Time{}, day.Add(12*time.Hour + 30*time.Minute + time.Millisecond)},
		{"2026-11-03 00:00", "2026-11-03 12:01"}: {day, day.Add(12*time.Hour + time.Minute + time.Millisecond)},
	} {
		from, to, err := ParseRunSpan(text[0], text[1], run, end)
		if err != nil || !from.Equal(want[0]) || !to.Equal(want[1]) {
			t.Errorf("%q: %v to %v, %v; want %v", text, from, to, err, want)
		}
	}
	for _, bad := range [][2]string{{"x", ""}, {"", "2026-11-02"}, {"+2s", "+1s"}, {"", "11:00"}} {
		if from, to, err := ParseRunSpan(bad[0], bad[1], run, end); err == nil {
			t.Errorf("%q: %v to %v", bad, from, to)
		}
	}
}
