package report

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/replay"
)

// count is a number with its noun: "1 run", "2,000 runs".
func count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return number(n) + " " + noun
}

// countAs is count for a noun whose plural is not made with an s.
func countAs[N int | int64 | uint64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + more
}

// number groups digits by three.
func number[N int | int64 | uint64](n N) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// some lists names, and describes how many more there are. They are made safe to show.
func some(names []string) string {
	shown := make([]string, 0, maxNames)
	for _, name := range names[:min(len(names), maxNames)] {
		shown = append(shown, short(name))
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - len(shown); more > 0 {
		text += " and " + number(more) + " more"
	}
	return text
}

const maxName = 120 // characters of a name in a sentence

// short makes a name safe to show, and cuts it where it is too long for a sentence.
func short(name string) string {
	if name == "" {
		return "(none)"
	}
	runes := []rune(replay.Visible(name[:min(len(name), 4*maxName)]))
	if len(runes) > maxName || len(name) > 4*maxName {
		return string(runes[:min(len(runes), maxName)]) + "…"
	}
	return string(runes)
}

// tallies counts by name.
type tallies map[string]uint64

// String lists them, the most frequent first: "3 dns-tunnel, 1 dns-sweep".
func (t tallies) String() string {
	names := slices.SortedFunc(maps.Keys(t), func(a, b string) int { return cmp.Or(cmp.Compare(t[b], t[a]), cmp.Compare(a, b)) })
	list := make([]string, 0, len(names))
	for _, name := range names[:min(len(names), maxNames)] {
		list = append(list, number(t[name])+" "+short(name))
	}
	if more := len(names) - len(list); more > 0 {
		list = append(list, number(more)+" more kinds")
	}
	return strings.Join(list, ", ")
}

// names lists what was counted, in order of the alphabet.
func (t tallies) names() []string { return slices.Sorted(maps.Keys(t)) }

// add counts one more; what is new is only counted while there is room.
func (t tallies) add(name string, n uint64) {
	const room = 10_000 // a guest can make names up
	if _, known := t[name]; known || len(t) < room {
		t[name] += n
	}
}

// sorted returns the keys in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// visible is the short name of what makes text safe to show.
func visible(text string) string { return replay.Visible(text) }

func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return count(int(d/(24*time.Hour)), "day")
	case d >= 2*time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func bytesText(n uint64) string {
	switch {
	case n >= 10<<20:
		return number(n>>20) + " MiB"
	case n >= 10<<10:
		return number(n>>10) + " KiB"
	}
	return count(n, "byte")
}
