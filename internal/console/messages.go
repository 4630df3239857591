// Package console writes a program's output: its results on standard output, and its own messages on standard
// error, where nothing else of the process may write.
package console

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"
	"unicode"
)

// Messages writes the program's own messages: lines for a person, or log entries of a service.
// Its methods are safe for concurrent use once the fields are set.
type Messages struct {
	Out  io.Writer
	Name string // the program's name, with which each line for a person begins
	// Mask, if set, replaces the values of secrets in messages.
	Mask func(string) string
	// Log, if set, gets the messages instead of Out. It must mask secrets itself.
	Log *slog.Logger
	// Describe returns the text of an error, and a hint what the user can do about it; "" if there is none.
	Describe func(error) (text, hint string)
}

// Say writes text, each line of it beginning with the program's name.
func (m *Messages) Say(text string) {
	if m.Mask != nil {
		text = m.Mask(text)
	}
	if m.Log != nil {
		m.Log.Info(Clean(text))
		return
	}
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(m.Out, "%s: %s\n", m.Name, Clean(line))
	}
}

// Complain writes an error and its hint.
func (m *Messages) Complain(err error) {
	text, hint := m.Describe(err)
	if m.Log != nil {
		m.Log.Error(Clean(text), "hint", hint)
		return
	}
	m.Say(text)
	if hint != "" {
		m.Say("hint: " + hint)
	}
}

// Close closes c and writes the error, if there is one.
func (m *Messages) Close(c io.Closer) {
	if err := c.Close(); err != nil {
		m.Complain(err)
	}
}

// Writer returns a writer whose lines become messages.
func (m *Messages) Writer() io.Writer { return lines{m} }

type lines struct{ *Messages }

// Write implements io.Writer.
func (l lines) Write(p []byte) (int, error) {
	l.Say(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// Adopt makes the default loggers of the process write messages. What libraries log with the package slog, as Tessera
// does, becomes a message if it is a warning or worse. The output of package log is discarded:
// what is written there is often cut out of what a peer sent, and a part of a secret's value cannot be masked.
func (m *Messages) Adopt() {
	logger := m.Log
	if logger == nil {
		logger = slog.New(slog.NewTextHandler(m.Writer(), &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
	}
	slog.SetDefault(logger) // which makes log write there
	log.SetOutput(io.Discard)
}

// withoutTime removes the time from a line for a person.
func withoutTime(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && attr.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attr
}

// Clean replaces characters with which text of another origin could move the cursor, or look like other text.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.C, r) && r != '\t' || unicode.In(r, unicode.Zl, unicode.Zp) { // bidirectional overrides are of C
			return '\uFFFD'
		}
		return r
	}, s)
}

// OrDash returns s, cleaned, or "-" if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return Clean(s)
}
