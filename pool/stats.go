package pool

import "time"

// Meter counts what a pool does. Its methods must not block or call the pool. metrics.Pool implements it.
type Meter interface {
	Hit()                      // Acquire returned a lease
	Miss(reason string)        // Acquire returned an EmptyError
	Wait(took time.Duration)   // Acquire has waited, with or without success
	Refill(took time.Duration) // a sandbox was made
	Fail()                     // a sandbox could not be made
	Destroy(cause string)      // a sandbox is being destroyed
}

type noMeter struct{}

func (noMeter) Hit()                 {}
func (noMeter) Miss(string)          {}
func (noMeter) Wait(time.Duration)   {}
func (noMeter) Refill(time.Duration) {}
func (noMeter) Fail()                {}
func (noMeter) Destroy(string)       {}

// Stats are the numbers of sandboxes by their state, and of callers that wait.
type Stats struct {
	Making int
	Idle   int
	Leased int // and those that a caller of Acquire checks
	Ending int // Destroy has not succeeded yet
	Stuck  int // of those, Destroy has failed
	Keys   int // that have a pool
	// Waiting counts callers of Acquire that wait for a sandbox to be made.
	Waiting int
}

// Stats returns the present numbers.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Keys: len(p.kinds), Waiting: p.waiting}
	for _, k := range p.kinds {
		s.Making += k.making
	}
	for m := range p.members {
		switch m.state {
		case idle:
			s.Idle++
		case checked, leased:
			s.Leased++
		case ending:
			s.Ending++
			if m.stuck {
				s.Stuck++
			}
		}
	}
	return s
}
