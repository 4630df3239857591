package access

import (
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// limits are token buckets by key. Of the keys that were not seen for the longest time, those
// over maxLimits are forgotten: their buckets are full again.
type limits struct {
	every rate.Limit
	burst int

	mu sync.Mutex // guards of, and that a key gets one bucket
	of *lru.Cache[string, *rate.Limiter]
}

const maxLimits = 16_384

func newLimits(every rate.Limit, burst int) *limits {
	cache, err := lru.New[string, *rate.Limiter](maxLimits)
	if err != nil { // of a size below 1
		panic(err)
	}
	return &limits{every: every, burst: burst, of: cache}
}

// take takes one from key's bucket. If it is empty, it returns when there will be one.
func (l *limits) take(key string) (wait time.Duration, ok bool) {
	l.mu.Lock()
	bucket, found := l.of.Get(key)
	if !found {
		bucket = rate.NewLimiter(l.every, l.burst)
		l.of.Add(key, bucket)
	}
	l.mu.Unlock()
	now := time.Now()
	r := bucket.ReserveN(now, 1)
	if !r.OK() {
		return time.Minute, false
	}
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// Failed logins of one address: afterwards it has to wait. Valid credentials are never
// delayed by it: an attacker beside a user must not keep the user out, and 256 bits are not
// guessed at any rate.
const (
	failedEvery = rate.Limit(10.0 / 60)
	failedBurst = 10
)

// network is the unit of rate limits: for IPv6 the /64, all of which one host can use.
func network(addr netip.Addr) string {
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

// remote returns the client's address. Headers that claim another one are ignored.
func remote(hostport string) netip.Addr {
	ap, err := netip.ParseAddrPort(hostport)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
