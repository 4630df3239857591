package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/custody-project/custody/internal/regular"
)

// Result is the result for one target.
type Result struct {
	Name   string
	Answer string // of a webhook: status and beginning of the response body
	Err    error
}

// Try sends a test message to the targets with these names, or to all, once and bypassing their queues. A name that c does
// not have has a Result with an error.
func Try(ctx context.Context, c Config, web Web, about Message, names ...string) []Result {
	m := about
	m.Type, m.Severity, m.Detail = Test, "info", "a test of this host's notifications"
	m = m.finish()
	var all []Result
	unknown := map[string]bool{}
	for _, name := range names {
		unknown[name] = true
	}
	wanted := func(name string) bool {
		known := unknown[name]
		delete(unknown, name)
		return known || len(names) == 0
	}
	for _, w := range c.Webhooks {
		if wanted(w.Name) {
			answer, err := w.post(ctx, web, m, time.Now())
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
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		all = append(all, Result{Name: name, Err: errors.New("no webhook or hook of host.yaml has this name")})
	}
	return all
}

// Deliver sends each webhook's queued messages once, to each webhook independently of the others.
func Deliver(ctx context.Context, dir string, c Config, web Web, warn func(string)) error {
	errs := make([]error, len(c.Webhooks))
	var sending sync.WaitGroup
	for i, w := range c.Webhooks {
		sending.Go(func() {
			d := &deliverer{webhook: w, web: web, queue: queue{filepath.Join(dir, w.Name)}, warn: warn}
			if r := d.pass(ctx, &target{}, isKept); r.err != nil {
				errs[i] = fmt.Errorf("%s: %w", w.Name, r.err)
			}
		})
	}
	sending.Wait()
	return errors.Join(errs...)
}

// States returns the state of each target of c, or the error of reading it.
func States(dir string, c Config) []State {
	var all []State
	add := func(name string) {
		q := queue{filepath.Join(dir, name)}
		s, err := q.state()
		waiting, listErr := q.names()
		s.Waiting = len(waiting)
		if err := errors.Join(err, listErr, regular.Check(filepath.Join(q.dir, "lock"))); err != nil {
			s.Error = err.Error()
		}
		all = append(all, s)
	}
	for _, w := range c.Webhooks {
		add(w.Name)
	}
	for _, h := range c.Hooks {
		add(h.Name)
	}
	return all
}
