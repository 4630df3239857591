package export

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/custody-project/custody/store"
)

// Limits of a queue, and how long it delays a segment.
const (
	queueRefs   = 1000
	queueRuns   = 4096
	waitForGaps = 3 * time.Second
)

// queue returns a feed's segments such that those of a run are in order, although several
// ingesters may have stored them in another order.
//
//	feed --add--> waiting --next--> being read --finish--> done --(all before it are done)--> before the cursor
//
// A segment waits while its predecessor is missing, for some seconds only: it may never appear. Segments of
// other runs are not delayed. What was done after the cursor is repeated after a restart.
type queue struct {
	refs   []queued
	fetch  string // feed cursor after the last of refs
	cursor string // feed cursor before which all are done
	runs   *simplelru.LRU[runKey, uint64]
}

type queued struct {
	store.Ref
	seen time.Time
	done bool
}

func newQueue(cursor string) *queue {
	q := &queue{fetch: cursor, cursor: cursor}
	q.runs, _ = simplelru.NewLRU[runKey, uint64](queueRuns, nil) // fails only for sizes below 1
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

// next returns the next segment, nil if there is none or all of them wait.
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

// finish marks a segment from next as done, and advances the cursor.
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
