package replay

import (
	"maps"
	"slices"
	"strings"

	"github.com/custody-project/custody/audit"
)

// maxTailLine bytes of an output line are kept; its beginning goes first.
const maxTailLine = 4096

// tail keeps the last lines of output over all streams.
type tail struct {
	limit   int
	lines   []OutputLine
	partial map[string]string // by stream: what has no line end yet
}

func newTail(limit int) tail { return tail{limit: limit, partial: map[string]string{}} }

func (t *tail) add(o *audit.Output) {
	text := t.partial[o.Stream] + string(o.Text)
	for {
		line, rest, ended := strings.Cut(text, "\n")
		if !ended {
			break
		}
		t.push(o.Stream, strings.TrimSuffix(line, "\r"))
		text = rest
	}
	t.partial[o.Stream] = text[max(0, len(text)-maxTailLine):]
}

func (t *tail) push(stream, line string) {
	if len(t.lines) >= 2*t.limit { // now and then, not for every line
		t.lines = slices.Clone(t.lines[len(t.lines)-t.limit:])
	}
	t.lines = append(t.lines, OutputLine{stream, audit.Text(line[max(0, len(line)-maxTailLine):])})
}

// last returns the last lines, those without an end included.
func (t *tail) last() []OutputLine {
	for _, stream := range slices.Sorted(maps.Keys(t.partial)) {
		if t.partial[stream] != "" {
			t.push(stream, t.partial[stream])
		}
	}
	clear(t.partial)
	return t.lines[max(0, len(t.lines)-t.limit):]
}
