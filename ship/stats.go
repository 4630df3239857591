package ship

import (
	"errors"
	"fmt"
	"time"
)

// Stats are the statistics of a transport or an ingester since it started. Some fields are not set by all.
type Stats struct {
	// Segments that were published here, or received from the stream, and are not known to be in the store.
	Segments int
	Bytes    int64
	Oldest   time.Duration // age of the oldest of them, 0 if there are none

	Published, PublishedBytes uint64 // segments accepted by the stream, and their messages' bytes
	Stored, StoredRows        uint64 // segments, and for an ingester records, that the store has committed
	Refused                   uint64 // segments that no store can accept
	Redelivered               uint64 // segments that the stream delivered again
	Reconnects                uint64 // to the servers
	StoreFailures             uint64 // failed commits, which are retried
	Questions                 uint64 // answered
	Dropped                   uint64 // records omitted from live tails because the connection was too slow

	Publish Latency // from Publish to the stream's acknowledgement
	Commit  Latency // of Store.Ingest
	// Failing is why segments are not stored at the moment, "" if they are.
	Failing string
}

// underway sums the segments that are not known to be in the store.
func (s *Stats) underway(all map[string]sent) {
	now := time.Now()
	for _, one := range all {
		s.Segments++
		s.Bytes += int64(one.size)
		s.Oldest = max(s.Oldest, now.Sub(one.at))
	}
}

// Latency sums durations.
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

// refusals are the errors of segments that the store refused: the first few, and the total number.
type refusals struct {
	errs  []error
	count int
}

// maxRefused bounds the stored errors; later ones are only counted.
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
