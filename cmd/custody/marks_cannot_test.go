package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/store"
)

// TestMarksCannot: where the log cannot be read, the mark has no path of this host, and the host's log has the reason.
func TestMarksCannot(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	manifests, err := filepath.Glob(filepath.Join(r.home.RunDir(id), "*"+wal.ManifestSuffix))
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	for _, file := range manifests {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Run(*app) error }{timelineCmd{Name: id, JSON: true}, runsCmd{JSON: true}, exportCmd{Runs: []string{id}, Format: "json"}} {
		var out, log strings.Builder
		if err := c.Run(newApp(t.Context(), nil, &out, &log)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), `"state":"cannot"`) || strings.Contains(out.String(), r.home.Dir) {
			t.Errorf("%T: %s", c, out.String())
		}
		if !strings.Contains(log.String(), manifests[0]) {
			t.Errorf("%T does not say which file: %s", c, log.String())
		}
	}
}

// TestVerifyInterrupted: a signal in the middle of a check is no finding.
func TestVerifyInterrupted(t *testing.T) {
	r := newRecorded(t, "")
	id := r.run()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, check := range map[string]func(a *app) error{
		"before": func(a *app) error { return verifyCmd{What: id, Within: time.Hour}.Run(a) },
		"while the store is compared": func(a *app) error {
			return a.env().Verdict(a.ctx, fmt.Errorf("the log holds, but the store has something else: %w", context.Canceled), "")
		},
		"when the store is away": func(a *app) error { return a.env().CannotBeJudged(a.ctx, store.ErrNotFound) },
	} {
		var out strings.Builder
		a := newApp(ctx, nil, &out, &out)
		if code := a.code(check(a)); code != 2 || !strings.Contains(out.String(), "interrupted by a signal") || strings.Contains(out.String(), "the store shows") {
			t.Errorf("%s: exits %d: %s", name, code, out.String())
		}
	}
	var out strings.Builder
	a := newApp(ctx, nil, &out, &out)
	if code := a.code(a.env().Verdict(a.ctx, &verdict.Verdict{Outcome: verdict.ErrDoesNotHold, Finding: verdict.ErrAltered}, "")); code != 1 {
		t.Errorf("a finding that was made before the signal exits %d: %s", code, out.String())
	}
}
