package dnsproxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// load sends queries to a server and checks that each is answered with an address.
type load struct {
	server string
	name   func(i int) string // the i-th name; all have the same length
	next   atomic.Int64       // the number of the next query
}

// template packs a query for the name, with EDNS as stub resolvers use it.
func template(t testing.TB, name string) []byte {
	t.Helper()
	var m dns.Msg
	m.SetQuestion(dns.Fqdn(name), dns.TypeA)
	m.SetEdns0(1232, false)
	b, err := m.Pack()
	check(t, err)
	return b
}

// rename replaces the name in a query with one of the same length and label lengths.
func rename(query []byte, name string) {
	at := headerSize
	for label := range strings.SplitSeq(name, ".") {
		copy(query[at+1:], label)
		at += 1 + len(label)
	}
}

// closed sends n queries from the given number of sockets, with window open queries on each, as fast as the server
// answers. It returns the number of queries without an answer in time.
func (l *load) closed(t testing.TB, n, sockets, window int) (lost int64) {
	t.Helper()
	var wg sync.WaitGroup
	var missed atomic.Int64
	limit := l.next.Load() + int64(n)
	for range sockets {
		c, err := net.Dial("udp", l.server)
		check(t, err)
		query := template(t, l.name(0))
		wg.Go(func() {
			defer c.Close()
			if err := l.pump(c.(*net.UDPConn), query, limit, window, &missed); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return missed.Load()
}

func (l *load) pump(c *net.UDPConn, query []byte, limit int64, window int, missed *atomic.Int64) error {
	buf := make([]byte, 4096)
	open := 0
	for {
		for open < window {
			i := l.next.Add(1) - 1
			if i >= limit {
				break
			}
			binary.BigEndian.PutUint16(query, uint16(i))
			rename(query, l.name(int(i)))
			if _, err := c.Write(query); err != nil {
				return err
			}
			open++
		}
		if open == 0 {
			return nil
		}
		c.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, err := c.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			missed.Add(int64(open))
			open = 0
			continue
		}
		if err != nil {
			return err
		}
		if n < headerSize || buf[3]&0xf != 0 || buf[7] == 0 {
			return fmt.Errorf("a reply without an address: % x", buf[:min(n, 64)])
		}
		open--
	}
}

// paced sends queries at the given rate for the duration, whether they are answered or not, and returns the sorted
// latencies, measured from the time at which each query was due. Packets that a busy machine drops have no latency.
func (l *load) paced(t testing.TB, rate int, took time.Duration) []time.Duration {
	t.Helper()
	c, err := net.Dial("udp", l.server)
	check(t, err)
	defer c.Close()
	total := int(took.Seconds() * float64(rate))
	due := make([]atomic.Int64, 1<<16) // by id
	out := make([]time.Duration, 0, total)
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := make([]byte, 4096)
		for len(out) < total {
			c.SetReadDeadline(time.Now().Add(3 * time.Second))
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if n >= headerSize && buf[3]&0xf == 0 && buf[7] > 0 {
				out = append(out, time.Duration(time.Now().UnixNano()-due[binary.BigEndian.Uint16(buf)].Load()))
			}
		}
	})
	query, begin := template(t, l.name(0)), time.Now()
	for i := range total {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if d := time.Until(at); d > 0 {
			time.Sleep(d)
		}
		binary.BigEndian.PutUint16(query, uint16(i))
		rename(query, l.name(int(l.next.Add(1)-1)))
		due[uint16(i)].Store(max(at.UnixNano(), 0))
		if _, err := c.Write(query); err != nil {
			t.Error(err)
		}
	}
	reader.Wait()
	slices.Sort(out)
	return out
}

// authority is a cheap upstream server. It answers every query with random addresses out of a thousand, or always with
// the same.
type authority struct {
	addr  netip.AddrPort
	asked atomic.Int64
}

func newAuthority(t testing.TB, perAnswer, outOf int, ttl uint32) *authority {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(t, err)
	check(t, c.SetReadBuffer(4<<20))
	a := &authority{addr: netip.MustParseAddrPort(c.LocalAddr().String())}
	done := make(chan struct{})
	go func() { defer close(done); a.serve(c, perAnswer, outOf, ttl) }()
	t.Cleanup(func() { c.Close(); <-done })
	return a
}

func (a *authority) serve(c *net.UDPConn, perAnswer, outOf int, ttl uint32) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		a.asked.Add(1)
		q := parse(buf[:n])
		r := reply{ttl: ttl}
		for range perAnswer {
			i := rand.IntN(outOf)
			r.addrs = append(r.addrs, netip.AddrFrom4([4]byte{93, 184, byte(i >> 8), byte(i)}))
		}
		c.WriteToUDPAddrPort(q.pack(nil, r, 4096), from)
	}
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}

// cpuOf returns the processor time of all threads of a process, in user and kernel mode, which other load on the machine
// does not affect.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	check(t, err)
	var sum time.Duration
	for _, task := range tasks {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
		if err != nil {
			continue // it has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		check(t, err)
		sum += time.Duration(ns)
	}
	return sum
}

// rss returns a process's resident memory in bytes.
func rss(t testing.TB, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	check(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	check(t, err)
	return pages * int64(os.Getpagesize())
}

// urgent is the nice value of the load and the measured process.
const urgent = "-15"

// keepTo runs all threads of this process on one processor, with a high priority, until the test ends.
func keepTo(t testing.TB, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	place(t, set)
}

// hurry is keepTo with all processors.
func hurry(t testing.TB) {
	t.Helper()
	place(t, everywhere())
}

func everywhere() (set unix.CPUSet) {
	for i := range runtime.NumCPU() {
		set.Set(i)
	}
	return set
}

func place(t testing.TB, set unix.CPUSet) {
	t.Helper()
	nice, err := strconv.Atoi(urgent)
	check(t, err)
	each := func(set unix.CPUSet, nice int) {
		tasks, err := os.ReadDir("/proc/self/task")
		check(t, err)
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			check(t, err)
			unix.SchedSetaffinity(tid, &set)
			unix.Setpriority(unix.PRIO_PROCESS, tid, nice)
		}
	}
	each(set, nice)
	t.Cleanup(func() { each(everywhere(), 0) })
}
