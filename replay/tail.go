package replay

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// OutputLine is a line that a step wrote, or that its terminal showed.
type OutputLine struct {
	Stream string     `json:"stream"`
	Text   audit.Text `json:"text"`
}

const (
	// maxTailLine bytes of an output line are kept; its beginning goes first.
	maxTailLine = 4096
	// maxTailLines are given, however many are asked for.
	maxTailLines = 10000
	// maxScreen bytes of what went to a terminal decide what it shows: the last ones.
	maxScreen = 64 << 10
	// terminal is the stream of a step that has one.
	terminal = "tty"
)

// tail keeps the last lines of output over all streams. What went to a terminal is
// shown as the terminal shows it, before the lines of pipes if those came last.
type tail struct {
	limit   int
	lines   []OutputLine
	partial map[string]string // by stream: what has no line end yet
	screen  []byte            // the last of what went to a terminal
	on      string            // the step whose terminal it is
	newest  string            // stream of the last piece
}

func newTail(limit int) tail {
	return tail{limit: min(max(limit, 0), maxTailLines), partial: map[string]string{}}
}

func (t *tail) add(step string, o *audit.Output) {
	t.newest = o.Stream
	if o.Stream == terminal {
		t.terminal(step, string(o.Text))
		return
	}
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

// terminal takes what went to a step's terminal. Each step has a new one.
func (t *tail) terminal(step, text string) {
	if step != t.on && len(t.screen) > 0 {
		t.screen = append(t.screen, "\x1b[?1049l\r\n"...)
	}
	t.on = step
	t.screen = append(t.screen, text...)
	if n := len(t.screen) - maxScreen; n > maxScreen { // now and then
		t.screen = t.screen[:copy(t.screen, t.screen[n:])]
	}
}

func (t *tail) push(stream, line string) {
	if len(t.lines) >= 2*max(t.limit, 1) { // now and then, not for every line
		t.lines = slices.Clone(t.lines[len(t.lines)-t.limit:])
	}
	t.lines = append(t.lines, OutputLine{stream, audit.Text(strings.Clone(line[max(0, len(line)-maxTailLine):]))})
}

// last returns the last lines, those without an end included.
func (t *tail) last() []OutputLine {
	for _, stream := range slices.Sorted(maps.Keys(t.partial)) {
		if t.partial[stream] != "" {
			t.push(stream, t.partial[stream])
		}
	}
	clear(t.partial)
	all := append([]OutputLine{}, t.lines[max(0, len(t.lines)-t.limit):]...)
	if len(t.screen) == 0 {
		return all
	}
	var shown []OutputLine
	for _, line := range screenOf(string(t.screen), t.limit) {
		shown = append(shown, OutputLine{terminal, audit.Text(line)})
	}
	if t.newest == terminal {
		all = append(all, shown...)
	} else {
		all = append(shown, all...)
	}
	return all[max(0, len(all)-t.limit):]
}

// screenOf returns what the end of text leaves on a terminal.
func screenOf(text string, lines int) []string {
	if n := len(text) - maxScreen; n > 0 {
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		text = text[n:]
		if at := strings.IndexAny(text, "\n\x1b"); at > 0 && at < 4096 { // not within a line, or in the rest of a sequence
			text = text[at:]
		}
	}
	s := newScreen()
	s.write(text)
	return s.last(lines)
}
