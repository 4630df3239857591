package export

import (
	"sync"
	"time"
)

// tally counts the results of events. It is safe for concurrent use.
type tally struct {
	mu sync.Mutex // guards s
	s  Stats
}

func (t *tally) change(f func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.s)
}

func (t *tally) read() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.s
}

func (t *tally) taken(n int) {
	t.change(func(s *Stats) {
		s.Sent += uint64(n)
		s.LastSuccess, s.FailingSince, s.Halted = time.Now(), time.Time{}, false
	})
}

func (t *tally) retried() { t.change(func(s *Stats) { s.Retried++ }) }

func (t *tally) halted(yes bool) { t.change(func(s *Stats) { s.Halted = yes }) }

func (t *tally) failed(err error) {
	t.change(func(s *Stats) {
		s.LastError, s.LastErrorAt = err.Error(), time.Now()
		if s.FailingSince.IsZero() {
			s.FailingSince = s.LastErrorAt
		}
	})
}
