package host

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/audit/wal"
)

// ErrSpoolFull is that the store lags so far behind that this host may keep no more.
type ErrSpoolFull struct{ Have, Limit int64 }

// Error implements error.
func (e *ErrSpoolFull) Error() string {
	return fmt.Sprintf("the spool is full: %s of segments are not in the store, at most %s may be",
		units.BytesSize(float64(e.Have)), units.BytesSize(float64(e.Limit)))
}

// Hint returns what to do about it.
func (e *ErrSpoolFull) Hint() string {
	return "it goes on when the store takes segments again: look at the transport and the store, or raise spool: in " + ConfigFile
}

// spool knows how much of this host's logs the store does not have.
type spool struct {
	mu    sync.Mutex // guards what follows
	bytes int64
	known time.Time // when it was counted
}

// spoolAge is how long a count is good for. The spool may grow beyond its limit by what is
// recorded meanwhile.
const spoolAge = 500 * time.Millisecond

// room is called by a log before it writes.
func (s Shipping) room() error {
	limit := int64(s.host.config.Spool)
	if limit == 0 {
		return nil
	}
	if have := s.Unshipped(); have > limit {
		return &ErrSpoolFull{have, limit}
	}
	return nil
}

// Unshipped returns how many bytes of segments the store is not known to have.
func (s Shipping) Unshipped() int64 {
	s.host.spool.mu.Lock()
	defer s.host.spool.mu.Unlock()
	if time.Since(s.host.spool.known) < spoolAge {
		return s.host.spool.bytes
	}
	runs, err := s.host.RunLogs().all()
	if err != nil {
		return s.host.spool.bytes
	}
	s.host.spool.bytes = 0
	for _, run := range runs {
		if !s.host.RunLogs().HasWhole(run) {
			s.host.spool.bytes += s.unshipped(run)
		}
	}
	s.host.spool.known = time.Now()
	return s.host.spool.bytes
}

// unshipped sums up the segments after those that the store has. Manifests stay when retention removes their segments,
// and so show how far the store is.
func (s Shipping) unshipped(run string) int64 {
	dir, stored := s.host.RunDir(run), s.storedCount(run)
	manifests, _ := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix)) // the pattern is good
	segments, err := wal.Segments(dir)
	if err != nil {
		return 0
	}
	if stored > uint64(len(manifests)) {
		stored = uint64(len(manifests))
	}
	have := map[uint64]bool{}
	for _, path := range manifests[:stored] {
		if first, ok := wal.ParseName(filepath.Base(path), wal.ManifestSuffix); ok {
			have[first] = true
		}
	}
	var sum int64
	for _, path := range segments {
		first, _ := wal.ParseName(filepath.Base(path), wal.SegmentSuffix)
		if info, err := os.Stat(path); err == nil && !have[first] {
			sum += info.Size()
		}
	}
	return sum
}
