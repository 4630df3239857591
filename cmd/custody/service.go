package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
)

// service has the program's own words leave as lines of JSON, through the redactor, as
// what runs for long and is watched by others wants them.
func (a *app) service(h *host.Host, name string) error {
	tag, err := h.TagKey()
	if err != nil {
		return err
	}
	r, err := pattern.NewRedactor(tag)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(a.ctx, os.Interrupt) // for as long as the program lives
	context.AfterFunc(ctx, stop)
	a.ctx = ctx
	a.Log = slog.New(slog.NewJSONHandler(masked{a.stderr, r}, nil)).With("service", name)
	a.Adopt()
	h.Warn = func(text string) { a.Log.Warn(text) }
	return nil
}

// masked takes the values of secrets out of what is written, one whole line at a time.
type masked struct {
	out io.Writer
	red *redact.Redactor
}

// Write implements io.Writer for slog, which writes each line with one call.
func (m masked) Write(line []byte) (int, error) {
	if _, err := io.WriteString(m.out, m.red.String(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}
