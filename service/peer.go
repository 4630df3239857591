package service

import "sync"

// Limit bounds how many of something there are.
type Limit struct {
	All    int
	OfUser int // of each user
}

// count counts against a limit. It is safe for concurrent use.
type count struct {
	limit Limit

	mu  sync.Mutex // guards the fields below
	all int
	of  map[int]int // by uid
}

func newCount(l Limit) *count { return &count{limit: l, of: map[int]int{}} }

// add reports whether there may be another one of the user.
func (c *count) add(uid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.limit.All || c.of[uid] >= c.limit.OfUser {
		return false
	}
	c.all++
	c.of[uid]++
	return true
}

// remove is called once for each add that returned true.
func (c *count) remove(uid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[uid]--; c.of[uid] == 0 {
		delete(c.of, uid)
	}
}
