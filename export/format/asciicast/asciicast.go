// Package asciicast writes the terminal output of a run as a recording, asciicast version 2
// (docs.asciinema.org/manual/asciicast/v2): a header, then one JSON array for each event. Players show it in real time.
//
// The text is the recorded output after redaction. It contains every escape sequence that the
// guest wrote: play it in a browser, or in a terminal to which you would let the guest write. Markers ("m") represent
// what the record lacks: output that was not recorded, records that were erased, the time during which a sandbox was
// frozen. Markers also show where steps begin and end.
//
// A pipe's line feeds get the carriage return that a terminal would have added. A byte
// that is not UTF-8 becomes U+FFFD, since the format supports only UTF-8: the record has the byte.
package asciicast

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
	"github.com/custody-project/custody/store"
)

// Options select the output.
type Options struct {
	Step   string // of this step alone; "" for all
	Stream string // stdout, stderr or tty alone; "" for all
	// Width and Height are the terminal's, in characters. The record does not have them. 0: 80 and 24.
	Width, Height int
}

// header is the first line.
type header struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp,omitempty"` // Unix time of the run's start, seconds
	Title     string `json:"title"`
}

// Write writes the output of the run with these rows, in order of seq. It needs little memory: the
// position of each stream.
func Write(w io.Writer, run store.Run, rows iter.Seq2[store.Row, error], o Options) error {
	c := caster{out: bufio.NewWriterSize(w, 64<<10), opt: o, began: run.Began(), streams: map[name]*stream{}}
	if o.Width <= 0 || o.Height <= 0 {
		o.Width, o.Height = 80, 24
	}
	h := header{Version: 2, Width: o.Width, Height: o.Height, Title: strings.TrimSpace("custody " + run.ID + " " + wire.Legible(o.Step, maxMarker))}
	if !c.began.IsZero() {
		h.Timestamp = c.began.Unix()
	}
	c.line(h)
	for row, err := range rows {
		if err != nil {
			return err
		}
		if c.began.IsZero() {
			c.began = row.Time
		}
		if err := c.row(row); err != nil {
			return fmt.Errorf("write asciicast: %w", err)
		}
	}
	for n := range c.streams {
		c.flush(n)
	}
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("write asciicast: %w", err)
	}
	return nil
}

// caster writes one recording.
type caster struct {
	out     *bufio.Writer
	opt     Options
	began   time.Time
	at      time.Duration // of the last event: time never decreases in a recording
	streams map[name]*stream
	err     error
}

// name returns the name of a stream.
type name struct{ step, stream string }

// stream is the position in a stream.
type stream struct {
	offset int64
	last   byte   // the last byte written
	rest   []byte // an incomplete character at the end of the last piece
}

func (c *caster) row(row store.Row) error {
	c.at = max(c.at, row.Time.Sub(c.began))
	if row.Erased != nil {
		c.mark("record %d was erased", row.Seq)
		return c.err
	}
	var r audit.Record
	if err := json.Unmarshal(row.Body, &r); err != nil {
		c.mark("record %d cannot be read", row.Seq)
		return c.err
	}
	switch {
	case c.opt.Step != "" && r.Step != "" && r.Step != c.opt.Step:
	case r.Output != nil:
		c.output(r.Step, r.Output)
	case r.Kind == audit.KindStep && r.Lifecycle != nil:
		c.step(r.Lifecycle)
	case r.VM != nil && (r.VM.Op == "freeze" || r.VM.Op == "thaw" || r.VM.Op == "silent"):
		c.mark("%s: %s", r.VM.Op, r.VM.Reason)
	case r.Gap != nil && r.Gap.Stage == audit.StageOutput:
		c.mark("output is missing, %d bytes: %s", r.Gap.Bytes, r.Gap.Cause)
	case r.Gap != nil && r.Gap.Stage == audit.StageWAL:
		c.mark("records %d to %d are missing: %s", r.Gap.First, r.Gap.Last, r.Gap.Cause)
	}
	return c.err
}

func (c *caster) step(l *audit.Lifecycle) {
	if l.Phase == audit.PhaseStart {
		c.mark("step %s: %s", l.Name, wire.CommandLine(l.Argv))
		return
	}
	for n := range c.streams {
		if n.step == l.Name {
			c.flush(n)
		}
	}
	if l.ExitCode != nil {
		c.mark("step %s: %s, exit code %d", l.Name, l.Status, *l.ExitCode)
		return
	}
	c.mark("step %s: %s %s", l.Name, l.Status, l.Reason)
}

func (c *caster) output(step string, o *audit.Output) {
	if c.opt.Stream != "" && o.Stream != c.opt.Stream {
		return
	}
	n := name{step, o.Stream}
	s := c.streams[n]
	if s == nil {
		s = &stream{}
		c.streams[n] = s
	}
	if o.Offset != s.offset {
		c.flush(n)
		c.mark("%s of step %s: bytes %d to %d are not in these records", o.Stream, step, s.offset, o.Offset)
	}
	s.offset = o.Offset + int64(len(o.Text))
	text := append(s.rest, o.Text...)
	whole := len(text) - unfinished(text)
	s.rest = append([]byte(nil), text[whole:]...)
	c.show(s, text[:whole], o.Stream == "tty")
}

// show writes text; output of pipes gets carriage returns.
func (c *caster) show(s *stream, text []byte, terminal bool) {
	if len(text) == 0 {
		return
	}
	last := s.last
	s.last = text[len(text)-1]
	if terminal {
		c.event("o", string(text))
		return
	}
	var b strings.Builder
	for _, t := range text {
		if t == '\n' && last != '\r' {
			b.WriteByte('\r')
		}
		b.WriteByte(t)
		last = t
	}
	c.event("o", b.String())
}

// flush writes an incomplete character.
func (c *caster) flush(n name) {
	s := c.streams[n]
	rest := s.rest
	s.rest = nil
	c.show(s, rest, true)
}

// unfinished returns how many bytes at the end of text are an incomplete character.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

const maxMarker = 200 // bytes of a marker's label

func (c *caster) mark(format string, args ...any) {
	c.event("m", wire.Legible(fmt.Sprintf(format, args...), maxMarker))
}

// event writes one line: seconds since the start, its type, and its text.
func (c *caster) event(code, data string) {
	c.line([]any{json.Number(strconv.FormatFloat(max(c.at, 0).Seconds(), 'f', 6, 64)), code, data})
}

func (c *caster) line(v any) {
	if c.err != nil {
		return
	}
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	c.err = enc.Encode(v)
}
