package netpolicy

import "sync/atomic"

// Live is the policy in force in one sandbox. Enforcers read it for each decision, so a change applies from the next one
// on. It is safe for concurrent use; the zero value allows nothing.
type Live struct {
	current atomic.Pointer[Generation]
}

// Generation is a policy with its number in this sandbox. Numbers begin at 1; before the first policy the number is 0,
// and nothing is allowed.
type Generation struct {
	Number uint32
	Policy *Policy
}

// Current returns the generation in force.
func (l *Live) Current() Generation {
	if g := l.current.Load(); g != nil {
		return *g
	}
	return Generation{}
}

// Set enforces the next generation. It must not be called concurrently.
func (l *Live) Set(p *Policy) Generation {
	g := Generation{Number: l.Current().Number + 1, Policy: p}
	l.current.Store(&g)
	return g
}
