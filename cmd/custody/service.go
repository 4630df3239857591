//go:build linux

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

// service makes the program write its messages as lines of JSON, through the redactor, as is usual for long-running
// services.
func (a *app) service(h *host.Host, name string) error {
	tag, err := h.TagKey()
	if err != nil {
		return err
	}
	r, err := pattern.NewRedactor(tag)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(a.ctx, os.Interrupt) // for as long as the program runs
	context.AfterFunc(ctx, stop)
	a.ctx = ctx
	a.Log = slog.New(slog.NewJSONHandler(masked{a.stderr, r}, nil)).With("service", name)
	a.Adopt()
	h.Warn = func(text string) { a.Log.Warn(text) }
	return nil
}

// masked masks the values of secrets in the written text, one complete line at a time.
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
