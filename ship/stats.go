package ship

import (
	"errors"
	"fmt"
	"time"
)

// Stats are the figures of a transport or an ingester since it began. Not all have all.
type Stats struct {
	// What was published here, or was taken from the stream, and is not known to be in the store.
	Segments int
	Bytes    int64
	Oldest   time.Duration // age of the oldest of them, 0 if there are none

	Published, PublishedBytes uint64 // segments that the stream has taken, and their messages' bytes
	Stored, StoredRows        uint64 // segments, and for an ingester records, that the store has committed
	Refused                   uint64 // segments that no store can take
	Redelivered               uint64 // segments that came from the stream again
	Reconnects                uint64 // to the servers
	StoreFailures             uint64 // commits that did not work and are tried again
	Questions                 uint64 // answered
	Dropped                   uint64 // records left out of live tails because the connection was too slow

	Publish Latency // from Publish to the stream's acknowledgement
	Commit  Latency // of Store.Ingest
	// Failing is why segments do not move just now, "" if they do.
	Failing string
}

// underway adds up what is not known to be in the store.
func (s *Stats) underway(all map[string]sent) {
	now := time.Now()
	for _, one := range all {
		s.Segments++
		s.Bytes += int64(one.size)
		s.Oldest = max(s.Oldest, now.Sub(one.at))
	}
}

// Latency sums up how long something took.
type Latency struct {
	Count     uint64
	Sum, Last time.Duration
	Max       time.Duration
}

func (l *Latency) add(d time.Duration) {
	l.Count++
	l.Sum += d
	l.Last = d
	l.Max = max(l.Max, d)
}

// refusals are why the store took some segments never: the first few, and the number of all.
type refusals struct {
	errs  []error
	count int
}

// maxRefused errors are kept; of later ones only the number.
const maxRefused = 16

func (r *refusals) add(err error) {
	if r.count++; len(r.errs) < maxRefused {
		r.errs = append(r.errs, err)
	}
}

func (r *refusals) err() error {
	err := errors.Join(r.errs...)
	if more := r.count - len(r.errs); more > 0 {
		err = errors.Join(err, fmt.Errorf("and %d more segments were refused", more))
	}
	return err
}
