package project

import (
	"testing"
	"time"

	"github.com/custody-project/custody/state/lifecycle"
)

func TestSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 7 * lifecycle.Day, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "0d1h": time.Hour, "9999d": 9999 * lifecycle.Day,
		"": -1, "d": -1, "7": -1, "7 d": -1, "-7d": -1, "+7d": -1, "1.5d": -1, "7d-1h": -1, "7d+1h": -1, "7d1d": -1, "1h7d": -1, "10000d": -1, "7D": -1, "7dx": -1,
	} {
		got, ok := parseSpan(text)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// FuzzSpan: the text of a duration that was parsed is that duration again.
func FuzzSpan(f *testing.F) {
	for _, text := range []string{"7d", "1d12h", "5m", "7d0.5s", "0d", "-1h", "9999d999999h"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, ok := parseSpan(text)
		if !ok || v <= 0 {
			return
		}
		if again, ok := parseSpan(spanText(v)); !ok && v < 10000*lifecycle.Day || ok && again != v {
			t.Errorf("%q is %v, and its text %q is %v", text, v, spanText(v), again)
		}
	})
}

// TestInheritedArchive: a file that only deletes earlier than the project archives is within the project.
func TestInheritedArchive(t *testing.T) {
	base := "version: 1\nlifecycle: {pause: 5m, archive: 7d}\n"
	f, beyond := narrowed(t, base, "version: 1\nlifecycle: {delete: 1d}\n")
	want := lifecycle.Policy{Pause: 5 * time.Minute, Archive: 7 * lifecycle.Day, Delete: lifecycle.Day, Keep: lifecycle.DefaultKeep}
	if len(beyond) > 0 || f.Lifecycle != want {
		t.Errorf("%+v, %q", f.Lifecycle, beyond)
	}
	if f, beyond := narrowed(t, base, "version: 1\nlifecycle: {archive: never, pause: 1m}\n"); len(beyond) > 0 || f.Lifecycle.Archive != 0 || f.Lifecycle.Pause != time.Minute {
		t.Errorf("%+v, %q", f.Lifecycle, beyond)
	}
}
