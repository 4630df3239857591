package hostd_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/hostd"
	"github.com/custody-project/custody/worker"
)

// TestQueue: a caller without a place gets a notice that it waits, and then the place of a sandbox that ends; one that gives up takes none.
func TestQueue(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, rigOptions{users: []int{os.Getuid()}, max: 8, sandboxes: func(o hostd.Opener) hostd.Opener { return hostd.NewQueue(o, 1) }})
	type answer struct {
		sandbox worker.Sandbox
		err     error
	}
	open := func(ctx context.Context) (waits chan string, answers chan answer) {
		waits, answers = make(chan string, 8), make(chan answer, 1)
		go func() {
			s, _, err := hostd.NewClient(r.socket).Open(ctx, spec(), hostd.Events{Notice: func(text string) { waits <- text }})
			answers <- answer{s, err}
		}()
		return waits, answers
	}
	_, answers := open(t.Context())
	first := <-answers
	check(t, first.err)

	ctx, cancel := context.WithCancel(t.Context())
	waits, answers := open(ctx)
	if text := <-waits; !strings.Contains(text, "the run waits") {
		t.Errorf("%q", text)
	}
	cancel()
	if a := <-answers; !errors.Is(a.err, context.Canceled) {
		t.Errorf("%v, want %v", a.err, context.Canceled)
	}
	waits, answers = open(t.Context())
	<-waits
	check(t, first.sandbox.Close())
	next := <-answers
	check(t, next.err)
	check(t, next.sandbox.Close())

	_, answers = open(t.Context())
	last := <-answers
	check(t, last.err)
	check(t, last.sandbox.Close())
}
