package export

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/store"
)

// What a queue holds at most, and how long it holds a segment back.
const (
	queueRefs   = 1000
	queueRuns   = 4096
	waitForGaps = 3 * time.Second
)

// queue gives a feed's segments out so that those of a run come in their order, although several
// ingesters may have stored them in another.
//
//	feed --add--> waiting --next--> being read --finish--> done --(all before it are done)--> behind the cursor
//
// A segment waits while one before it is missing, for some seconds: it may never come. Those of
// other runs pass it. What was done ahead of the cursor comes again after a restart.
type queue struct {
	refs   []queued
	fetch  string // feed cursor behind the last of refs
	cursor string // feed cursor that all before it is done
	runs   *simplelru.LRU[runKey, uint64]
}

type queued struct {
	store.Ref
	seen time.Time
	done bool
}

func newQueue(cursor string) *queue {
	q := &queue{fetch: cursor, cursor: cursor}
	q.runs, _ = simplelru.NewLRU[runKey, uint64](queueRuns, nil) // it fails for sizes below 1 only
	return q
}

// room returns how many more refs fit.
func (q *queue) room() int { return queueRefs - len(q.refs) }

func (q *queue) add(refs []store.Ref, now time.Time) {
	for _, ref := range refs {
		q.refs = append(q.refs, queued{Ref: ref, seen: now})
		q.fetch = ref.Cursor
	}
}

// next returns the segment to go on with, nil when there is none or all of them wait.
func (q *queue) next(now time.Time) *queued {
	lowest := map[runKey]uint64{}
	for i := range q.refs {
		if r := &q.refs[i]; !r.done {
			key := runKey{r.Tenant, r.Run}
			if low, ok := lowest[key]; !ok || r.Index < low {
				lowest[key] = r.Index
			}
		}
	}
	for i := range q.refs {
		r := &q.refs[i]
		key := runKey{r.Tenant, r.Run}
		if r.done || r.Index > lowest[key] {
			continue
		}
		if expected, known := q.runs.Get(key); !known || r.Index <= expected || now.Sub(r.seen) >= waitForGaps {
			return r
		}
	}
	return nil
}

// finish marks what next returned as done, and moves the cursor.
func (q *queue) finish(r *queued) {
	key := runKey{r.Tenant, r.Run}
	if expected, known := q.runs.Get(key); !known || r.Index >= expected {
		q.runs.Add(key, r.Index+1)
	}
	r.done = true
	n := 0
	for n < len(q.refs) && q.refs[n].done {
		q.cursor = q.refs[n].Cursor
		n++
	}
	q.refs = q.refs[n:]
}
