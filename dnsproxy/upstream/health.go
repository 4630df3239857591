package upstream

import (
	"sync"
	"time"
)

// health tracks whether a server answers.
//
//	             2 failures in a row                 after the pause
//	healthy -------------------------> unhealthy,  ------------------> on trial: queried in its order
//	   ^                               queried last <----------------     |
//	   |                                    |        a failure: twice      |
//	   +------------- an answer ------------+        the pause             |
//	   +------------- an answer -------------------------------------------+
type health struct {
	mu       sync.Mutex // guards the fields below
	failures int        // in a row
	until    time.Time  // of the pause
}

// The pauses of an unhealthy server.
const (
	firstPause   = time.Second
	longestPause = 16 * time.Second
)

func (h *health) healthy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.until = 0, time.Time{}
}

func (h *health) failed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return // another query failed at the same time
	}
	h.failures++
	if h.failures >= 2 {
		h.until = now.Add(min(firstPause<<min(h.failures-2, 10), longestPause))
	}
}

// rank is the order of servers: a smaller rank is queried first.
func (h *health) rank(now time.Time) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return h.until.UnixNano()
	}
	return 0
}
