package access

import (
	"sync"
	"time"
)

// once are the one-time tokens that serve printed. Each is valid once, and for the time lasts:
//
//	made --- taken ---> used
//	  `---- lasts ----> gone (used ones too)
type once struct {
	lasts time.Duration // 0: onceTime

	mu   sync.Mutex // guards the fields below
	made map[digest]onceState
}

type onceState struct {
	until time.Time
	used  bool
}

const (
	onceTime = 10 * time.Minute
	maxOnce  = 64 // concurrently; a further one replaces the oldest
)

// add returns a new one-time token.
func (o *once) add() string {
	text, sum := newSecret(OncePrefix)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.made == nil {
		o.made = map[digest]onceState{}
	}
	o.tidy()
	o.made[sum] = onceState{until: time.Now().Add(or(o.lasts, onceTime))}
	return text
}

// take invalidates a token; used reports that it was used before.
func (o *once) take(text string) (ok, used bool) {
	sum := digestOf(text)
	o.mu.Lock()
	defer o.mu.Unlock()
	st, ok := o.made[sum]
	if !ok || !time.Now().Before(st.until) {
		return false, false
	}
	if st.used {
		return false, true
	}
	st.used = true
	o.made[sum] = st
	return true, false
}

// tidy makes room for one more. mu is held.
func (o *once) tidy() {
	var oldest digest
	for sum, st := range o.made {
		if !time.Now().Before(st.until) {
			delete(o.made, sum)
		} else if have, ok := o.made[oldest]; !ok || st.until.Before(have.until) {
			oldest = sum
		}
	}
	if len(o.made) >= maxOnce {
		delete(o.made, oldest)
	}
}
