package pool

import (
	"context"
	"testing"
)

// corpse is a sandbox that only dies.
type corpse struct {
	Sandbox
	dead chan struct{}
}

func (c corpse) Done() <-chan struct{} { return c.dead }

// TestAwait: a sandbox that is sent to a caller whose context has ended becomes idle, or goes to the next caller, or is destroyed if it
// has died.
func TestAwait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name       string
		next, dead bool
		want       state
	}{{"idle", false, false, idle}, {"next", true, false, checked}, {"dead", true, true, ending}} {
		returned := 0
		for range 100 { // await selects one of two events at random
			p := &Pool{opt: Options{}.withDefaults(), wake: make(chan struct{}, 1)}
			k := &kind{}
			m := &member{kind: k, state: checked, sandbox: corpse{dead: make(chan struct{})}, end: make(chan struct{})}
			if c.dead {
				close(m.sandbox.(corpse).dead)
			}
			next := &waiter{make(chan answer, 1)}
			if c.next {
				k.waiting, p.waiting = []*waiter{next}, 1
			}
			w := &waiter{make(chan answer, 1)}
			w.answer <- answer{member: m}
			got, err := p.await(ctx, k, w, nil)
			if got == m && err == nil {
				continue // the caller checks it
			}
			returned++
			if got != nil || err != context.Canceled || m.state != c.want || (len(k.idle) == 1) != (c.want == idle) || (len(next.answer) == 1) != (c.want == checked) {
				t.Fatalf("%s: %v, %v, state %d, %d idle, %d answers", c.name, got, err, m.state, len(k.idle), len(next.answer))
			}
		}
		if returned == 0 || returned == 100 {
			t.Errorf("%s: the context was selected %d times of 100", c.name, returned)
		}
	}
}
