package hostlog

import (
	"context"
	"log/slog"
	"sync"

	"k8s.io/klog/v2"
)

// redirectKlog sends Tessera's messages to slog's default logger instead of the terminal. klog has only one output for a
// process.
var redirectKlog = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(toDefault{})) })

// toDefault passes a record to the current default logger. It lowers Tessera's informational messages to
// debug level.
type toDefault struct{}

func (toDefault) Enabled(ctx context.Context, level slog.Level) bool {
	return slog.Default().Enabled(ctx, quieter(level))
}

func (toDefault) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quieter(r.Level)
	return slog.Default().Handler().Handle(ctx, r)
}

func (h toDefault) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h toDefault) WithGroup(string) slog.Handler      { return h }

func quieter(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return slog.LevelDebug
	}
	return level
}
