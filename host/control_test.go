package host_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store/storetest"
)

// TestControlFor: of the clients of the service, the user who has started a run and root control it, and their policies only narrow.
func TestControlFor(t *testing.T) {
	const owner = 1000
	h := configured(t, t.TempDir(), "file")
	id := host.NewRunID(storetest.Start())
	run, err := h.Begin(t.Context(), host.RunOptions{ID: id, Mode: wal.Strict, Facts: statement.Facts{Tier: "none"}, Redactor: testRedactor()})
	must(t, err)
	defer run.Close(t.Context(), wal.Sealed)
	var done []string
	do := func(what string) func(context.Context) error {
		return func(context.Context) error { done = append(done, what); return nil }
	}
	stop, err := run.Control(host.Controls{
		User: owner, Pause: do("pause"), Resume: do("resume"),
		Snapshot: func(ctx context.Context, _ host.SnapshotRequest) error { return do("snapshot")(ctx) },
		SetPolicy: func(ctx context.Context, _ []byte, narrow bool) (host.PolicyChange, error) {
			if narrow {
				return host.PolicyChange{}, do("narrow")(ctx)
			}
			return host.PolicyChange{}, do("policy")(ctx)
		},
	})
	must(t, err)
	defer stop()
	for name, c := range map[string]struct {
		control host.Control
		want    []string // nil: all is refused
	}{
		"without the service": {h.Control(), []string{"pause", "resume", "snapshot", "policy"}},
		"the user":            {h.Control().For(owner), []string{"pause", "resume", "snapshot", "narrow"}},
		"root":                {h.Control().For(0), []string{"pause", "resume", "snapshot", "narrow"}},
		"another user":        {h.Control().For(owner + 1), nil},
		"no user":             {h.Control().For(-1), nil},
	} {
		done = nil
		_, changed := c.control.SetPolicy(t.Context(), id, nil)
		for what, err := range map[string]error{
			"pause": c.control.Pause(t.Context(), id), "resume": c.control.Resume(t.Context(), id),
			"snapshot": c.control.Snapshot(t.Context(), id, host.SnapshotRequest{}), "policy": changed,
		} {
			if refused := err != nil && strings.Contains(err.Error(), host.UserName(owner)+" has started the run"); refused != (c.want == nil) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		slices.Sort(done)
		slices.Sort(c.want)
		if !slices.Equal(done, c.want) {
			t.Errorf("%s: %q were carried out, want %q", name, done, c.want)
		}
	}
}
