package upstream

import (
	"sync"
	"time"
)

// health remembers whether a server answers.
//
//	        2 failures in a row                    the pause is over: asked in
//	well ------------------------> ill, asked last ----------------------------> its place again
//	 ^                              |   ^                                          |
//	 +---------- an answer ---------+   +------- a failure: twice the pause -------+
type health struct {
	mu       sync.Mutex // guards the rest
	failures int        // in a row
	until    time.Time  // of the pause
}

// The pauses of a server that is ill.
const (
	firstPause   = time.Second
	longestPause = 16 * time.Second
)

func (h *health) well() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.until = 0, time.Time{}
}

func (h *health) failed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return // others failed at the same time
	}
	h.failures++
	if h.failures >= 2 {
		h.until = now.Add(min(firstPause<<min(h.failures-2, 10), longestPause))
	}
}

// rank is smaller for a server that is asked sooner.
func (h *health) rank(now time.Time) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Before(h.until) {
		return h.until.UnixNano()
	}
	return 0
}
