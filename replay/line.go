package replay

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"time"
)

// style is an SGR sequence.
type style string

const (
	plain   style = ""
	bold    style = "\x1b[1m"
	dim     style = "\x1b[2m"
	red     style = "\x1b[31m"
	green   style = "\x1b[32m"
	yellow  style = "\x1b[33m"
	blue    style = "\x1b[34m"
	magenta style = "\x1b[35m"
	cyan    style = "\x1b[36m"
	alarm   style = "\x1b[1;37;41m"
	reset         = "\x1b[0m"
)

// line gathers one line of styled pieces and writes it cut to a width. Pieces
// must have been escaped; the sequences of styles are the only ones written.
type line struct {
	out    *bufio.Writer
	color  bool
	html   bool
	limit  int // cells, 0 for none
	pieces []piece
}

type piece struct {
	style style
	text  string
}

func newLine(out *bufio.Writer, opt Options) *line {
	return &line{out: out, color: opt.Color, html: opt.markup, limit: opt.Width}
}

func (l *line) put(s style, text string) {
	if text != "" {
		l.pieces = append(l.pieces, piece{s, text})
	}
}

// end writes the line. If it is too long, "…" takes its last cell.
func (l *line) end() {
	for n := len(l.pieces); n > 0; n-- { // no spaces at the end
		last := &l.pieces[n-1]
		if last.text = strings.TrimRight(last.text, " "); last.text != "" {
			break
		}
		l.pieces = l.pieces[:n-1]
	}
	left := l.limit
	if l.limit == 0 || l.width() <= l.limit {
		left = math.MaxInt
	}
	for _, p := range l.pieces {
		width := textWidth(p.text)
		if width >= left {
			l.write(piece{p.style, cut(p.text+" ", left)})
			break
		}
		l.write(p)
		left -= width
	}
	l.out.WriteByte('\n')
	l.pieces = l.pieces[:0]
}

func (l *line) width() (n int) {
	for _, p := range l.pieces {
		n += textWidth(p.text)
	}
	return n
}

func (l *line) write(p piece) {
	if l.html {
		l.markup(p)
		return
	}
	if l.color && p.style != plain {
		l.out.WriteString(string(p.style))
		l.out.WriteString(p.text)
		l.out.WriteString(reset)
		return
	}
	l.out.WriteString(p.text)
}

// cell writes a piece that takes up width cells and a gap behind it.
func (l *line) cell(s style, text string, width int) {
	text = cut(text, width)
	l.put(s, text)
	l.put(plain, strings.Repeat(" ", width-textWidth(text)+2))
}

// right writes a piece at the right end of width cells and a gap behind it.
func (l *line) right(s style, text string, width int) {
	text = cut(text, width)
	l.put(plain, strings.Repeat(" ", width-textWidth(text)))
	l.put(s, text+"  ")
}

// duration shows ns with three or four digits: 87µs, 12ms, 1.234s, 2m03s, 5h07m.
func duration(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d < 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.3fs", d.Truncate(time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}

// size shows bytes in powers of 1024 with at most four digits.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	value, units := float64(n), "KMGTPE"
	i := -1
	for value >= 1024 && i < len(units)-1 {
		value /= 1024
		i++
	}
	if value < 10 {
		return fmt.Sprintf("%.1f%ciB", value, units[i])
	}
	return fmt.Sprintf("%.0f%ciB", value, units[i])
}

// plural shows a number and its noun.
func plural[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
