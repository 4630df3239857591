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

// ErrSpoolFull reports that this host has as many segments that the store lacks as host.yaml allows.
type ErrSpoolFull struct{ Have, Limit int64 }

// Error implements error.
func (e *ErrSpoolFull) Error() string {
	return fmt.Sprintf("the spool is full: %s of segments are not in the store, the limit is %s",
		units.BytesSize(float64(e.Have)), units.BytesSize(float64(e.Limit)))
}

// Hint returns the remedy.
func (e *ErrSpoolFull) Hint() string {
	return "recording continues when the store takes segments again: check the transport and the store, or raise spool: in " + ConfigFile
}

// spool counts the bytes of this host's logs that the store lacks.
type spool struct {
	mu    sync.Mutex // guards the fields below
	bytes int64
	known time.Time // time of the count
}

// spoolAge is how long a count is used. Meanwhile the spool can grow beyond its limit by what is
// recorded.
const spoolAge = 500 * time.Millisecond

// room returns an *ErrSpoolFull if the spool is full. A log calls it before it writes.
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

// Unshipped returns the size in bytes of the segments that the store is not known to have.
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

// unshipped adds up the segments after those that the store has. When retention removes segments, their manifests stay,
// so the remaining manifests count the stored segments.
func (s Shipping) unshipped(run string) int64 {
	dir, stored := s.host.RunDir(run), s.storedCount(run)
	manifests, _ := filepath.Glob(filepath.Join(dir, "*"+wal.ManifestSuffix)) // the pattern is valid
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
