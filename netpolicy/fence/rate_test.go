package fence

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// TestLimit: with a limit, a direct TCP flow gets no more bytes per second through, in either direction, but it does get through.
func TestLimit(t *testing.T) {
	host, peer := newTopology(t)
	f, _ := newFence(t, host, everywhere("tcp/7000")...)
	g := newGuest(t, f)
	l := peer.listen(t, "tcp", at6or4(peerAddr4, 7000))
	const limit = 1 << 20
	must(t, f.Limit(limit))
	for _, way := range []string{"out", "in"} {
		near, err := g.dial("tcp", l.Addr().String())
		must(t, err)
		far, err := l.Accept()
		must(t, err)
		from, to := near, far
		if way == "in" {
			from, to = far, near
		}
		n, took := through(from, to, 2*time.Second)
		// Bursts and queues are a part of what passes in two seconds.
		if most := limit*(took.Seconds()+1) + 3*float64(burstOf(limit)); float64(n) > most || n < limit/4 {
			t.Errorf("%s: %d bytes in %v, with a limit of %d a second", way, n, took, limit)
		}
	}
}

// through sends until the time is over, and returns how many bytes arrived. It closes both ends.
func through(from, to net.Conn, during time.Duration) (n int64, took time.Duration) {
	var sending sync.WaitGroup
	sending.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := from.Write(buf); err != nil {
				return
			}
		}
	})
	began := time.Now()
	to.SetReadDeadline(began.Add(during))
	n, _ = io.Copy(io.Discard, to)
	took = time.Since(began)
	from.Close()
	to.Close()
	sending.Wait()
	return n, took
}
