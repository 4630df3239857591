package hostd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/doctor/remedy"
	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/project/registry"
	"github.com/custody-project/custody/vmm/template"
	"github.com/custody-project/custody/vmm/tier"
	"github.com/custody-project/custody/worker"
)

// refusing makes no sandboxes.
type refusing struct{ err error }

func (r refusing) Open(context.Context, hostd.Spec, hostd.Events) (worker.Sandbox, hostd.Details, error) {
	return nil, hostd.Details{}, r.err
}

func (r refusing) Reopen(context.Context, string) (worker.Sandbox, error) { return nil, r.err }

// TestErrorsCross: an error of custody host is the same kind of error in its client, with the same remedy.
func TestErrorsCross(t *testing.T) {
	for name, err := range map[string]error{
		"isolation":       fmt.Errorf("pick: %w", tier.ErrUnavailable),
		"no template":     fmt.Errorf("other: %w", template.ErrNotFound),
		"broken template": fmt.Errorf("base: %w", template.ErrBroken),
		"no project":      fmt.Errorf("shop: %w", registry.ErrUnknown),
		"a full disk":     &os.PathError{Op: "write", Path: "/disk", Err: unix.ENOSPC},
		"its own remedy":  fmt.Errorf("open: %w", &registry.DamagedError{Path: "/p", Err: errors.New("changed")}),
		"no remedy":       errors.New("something"),
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "host.sock")
			l, failed := privsep.Listen(t.Context(), socket, privsep.Access{UID: -1, GID: -1, Mode: 0o600})
			check(t, failed)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			s := &hostd.Server{Sandboxes: refusing{err}, Users: []int{os.Getuid()}, Max: 2, Notice: func(text string) { t.Error(text) }}
			go func() { served <- s.Serve(ctx, l) }()
			defer func() { cancel(); check(t, <-served) }()
			_, _, opened := hostd.NewClient(socket).Open(t.Context(), hostd.Spec{}, hostd.Events{})
			_, reopened := hostd.NewClient(socket).Reopen(t.Context(), "r-1")
			for _, got := range []error{opened, reopened} {
				if got == nil || got.Error() != err.Error() || remedy.Of(got) != remedy.Of(err) {
					t.Errorf("%v, remedy %q; want %v, %q", got, remedy.Of(got), err, remedy.Of(err))
				}
				for _, kind := range []error{tier.ErrUnavailable, template.ErrNotFound, template.ErrBroken, registry.ErrUnknown, unix.ENOSPC} {
					if errors.Is(got, kind) != errors.Is(err, kind) {
						t.Errorf("%v is %v: %v", got, kind, errors.Is(got, kind))
					}
				}
			}
		})
	}
}

// TestUnreachable: without custody host an error names the remedy.
func TestUnreachable(t *testing.T) {
	_, _, err := hostd.NewClient(filepath.Join(t.TempDir(), "none")).Open(t.Context(), hostd.Spec{}, hostd.Events{})
	if err == nil || !strings.Contains(remedy.Of(err), "systemctl status custody-host") {
		t.Errorf("%v, remedy %q", err, remedy.Of(err))
	}
}
