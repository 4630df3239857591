// Package csv writes records as a table for spreadsheets: RFC 4180, UTF-8, a header line,
// always the same columns. It is derived from the record and proves nothing; a bundle does.
//
// A guest cannot inject a formula: a cell that would begin with one of = + - @ or their full-width forms,
// with or without spaces before it, gets an apostrophe in front, and so does text after a semicolon, which many
// spreadsheets treat as the end of a cell. Numbers that Custody counted stay numbers. Control and format characters, and
// bytes that are not UTF-8, are written as \x1b, \u202e or \xff, and a backslash as two, so that every cell has one line
// and can be decoded. A text of more than 32,000 bytes is cut, and ends with its full length: spreadsheets limit a cell to
// 32,767 characters.
package csv

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export/internal/wire"
	"github.com/custody-project/custody/store"
)

const maxText = 32000 // bytes of a cell before escaping

// Columns are the names in the first line.
func Columns() []string {
	return []string{
		"run", "seq", "time", "observer", "kind", "step", "action", "verdict", "subject", "detail", "rule", "reason",
		"proc", "pid", "exit_code", "host", "address", "port", "sha256", "secret", "bytes_out", "bytes_in", "duration_ns",
	}
}

// Write writes the rows in order. An erased record and one that cannot be parsed have a line with a separate
// action.
func Write(w io.Writer, run store.Run, rows iter.Seq2[store.Row, error]) error {
	out := csv.NewWriter(w)
	if err := out.Write(Columns()); err != nil {
		return fmt.Errorf("write csv: %w", err)
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		if err := out.Write(lineOf(run, row).cells()); err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write csv: %w", err)
	}
	return nil
}

// line is one record, as values of the columns.
type line struct {
	run, time, observer, kind, step, action, verdict, subject, detail, rule, reason string
	proc, host, address, sha256, secret                                             string
	seq, bytesOut, bytesIn                                                          uint64
	pid, port                                                                       int
	code                                                                            *int
	duration                                                                        int64
}

// cells returns the values in the order of Columns.
func (l line) cells() []string {
	return []string{
		text(l.run), strconv.FormatUint(l.seq, 10), l.time, text(l.observer), text(l.kind), text(l.step), text(l.action),
		text(l.verdict), text(l.subject), text(l.detail), text(l.rule), text(l.reason), text(l.proc), number(l.pid), code(l.code), text(l.host),
		text(l.address), number(l.port), text(l.sha256), text(l.secret), count(l.bytesOut), count(l.bytesIn), number(l.duration),
	}
}

// number formats a count; "" for 0.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

func count(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func code(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

// text returns a cell that cannot be a formula.
func text(s string) string {
	if s == "" {
		return ""
	}
	s = wire.Legible(s, maxText)
	parts := strings.Split(s, ";")
	for i, p := range parts {
		if formula(p) {
			parts[i] = "'" + p
		}
	}
	return strings.Join(parts, ";")
}

// formula reports whether a spreadsheet would compute a cell with this beginning.
func formula(s string) bool {
	s = strings.TrimLeft(s, " \u00a0\u3000\"'")
	return strings.HasPrefix(s, "=") || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") || strings.HasPrefix(s, "@") ||
		strings.HasPrefix(s, "＝") || strings.HasPrefix(s, "＋") || strings.HasPrefix(s, "－") || strings.HasPrefix(s, "＠")
}

// lineOf parses a row.
func lineOf(run store.Run, row store.Row) line {
	l := line{run: run.ID, seq: row.Seq, time: clock(row.Time), observer: string(row.Observer), kind: string(row.Kind), step: row.Step, proc: row.Proc}
	if row.Erased != nil {
		l.action, l.detail = "erased", "the record was erased; its leaf is "+fmt.Sprintf("%x", *row.Erased)
		return l
	}
	var r audit.Record
	if err := json.Unmarshal(row.Body, &r); err != nil {
		l.action, l.detail = "unreadable", err.Error()
		return l
	}
	l.time, l.observer, l.kind, l.step = clock(r.Time), string(r.Observer), string(r.Kind), r.Step
	l.record(r, row.Body)
	return l
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
