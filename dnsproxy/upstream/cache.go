package upstream

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cache holds answers until they expire. The number of entries is bounded; the least recently used one is evicted.
type cache struct {
	mu      sync.Mutex // guards entries, which each lookup reorders
	entries *simplelru.LRU[question, entry]
}

type entry struct {
	answer Answer
	until  time.Time
}

func newCache(size int) *cache {
	l, err := simplelru.NewLRU[question, entry](size, nil)
	if err != nil {
		panic(err) // size is at least 1
	}
	return &cache{entries: l}
}

// get returns an answer that is still valid, with its remaining TTL.
func (c *cache) get(q question, now time.Time) (Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries.Get(q)
	if !ok {
		return Answer{}, false
	}
	left := e.until.Sub(now)
	if left <= 0 {
		c.entries.Remove(q)
		return Answer{}, false
	}
	a := e.answer
	a.TTL, a.Latency, a.Cached = left, 0, true
	return a, true
}

// put stores an answer for its TTL.
func (c *cache) put(q question, a Answer, now time.Time) {
	if a.TTL <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Add(q, entry{a, now.Add(a.TTL)})
}
