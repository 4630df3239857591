package notify

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// Result is how one target answered.
type Result struct {
	Name   string
	Answer string // of a webhook: status and beginning of the body
	Err    error
}

// Try sends a test message to the targets of these names, or to all, once and around their queues.
func Try(ctx context.Context, c Config, about Message, names ...string) []Result {
	m := about
	m.Type, m.Severity, m.Detail = Test, "info", "a test of this host's notifications"
	m = m.finish()
	var all []Result
	wanted := func(name string) bool {
		for _, n := range names {
			if n == name {
				return true
			}
		}
		return len(names) == 0
	}
	for _, w := range c.Webhooks {
		if wanted(w.Name) {
			answer, err := w.post(ctx, m, time.Now())
			r := Result{Name: w.Name, Err: err}
			if answer.Status != 0 {
				r.Answer = answer.Said()
			}
			all = append(all, r)
		}
	}
	for _, h := range c.Hooks {
		if wanted(h.Name) {
			all = append(all, Result{Name: h.Name, Answer: "exit code 0", Err: h.run(ctx, m)})
		}
	}
	return all
}

// Deliver sends what waits for each webhook, once.
func Deliver(ctx context.Context, dir string, c Config, warn func(string)) error {
	var errs []error
	for _, w := range c.Webhooks {
		d := &deliverer{webhook: w, queue: queue{filepath.Join(dir, w.Name)}, warn: warn}
		if err := d.deliver(ctx, &target{}); err != nil {
			errs = append(errs, errors.New(w.Name+": "+err.Error()))
		}
	}
	return errors.Join(errs...)
}

// States returns what is known of each target of c.
func States(dir string, c Config) ([]State, error) {
	var all []State
	var errs []error
	add := func(name string) {
		q := queue{filepath.Join(dir, name)}
		s, err := q.state()
		waiting, listErr := q.names()
		s.Waiting = len(waiting)
		all = append(all, s)
		errs = append(errs, err, listErr)
	}
	for _, w := range c.Webhooks {
		add(w.Name)
	}
	for _, h := range c.Hooks {
		add(h.Name)
	}
	return all, errors.Join(errs...)
}
