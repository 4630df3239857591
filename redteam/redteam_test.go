package redteam

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
)

// TestList: IDs are unique, every published bypass has a probe, and each probe for IPv4 has one for IPv6.
func TestList(t *testing.T) {
	t.Parallel()
	list := Probes("aaa")
	seen := map[string]bool{}
	bypasses := map[Bypass]int{}
	n := 0
	for i, p := range list {
		if seen[p.ID] || !regexp.MustCompile(`^[a-z]+/[a-z0-9.-]+$`).MatchString(p.ID) {
			t.Errorf("ID %q: duplicate or malformed", p.ID)
		}
		seen[p.ID] = true
		if p.Title == "" || p.Bypass == "" || p.proof == nil || p.task == nil == (p.frames == nil) && p.scene != refused {
			t.Errorf("%s is not complete: %+v", p.ID, p)
		}
		if !strings.HasPrefix(p.token, "paaa") || i > 0 && p.token == list[i-1].token {
			t.Errorf("%s: token %q", p.ID, p.token)
		}
		if strings.HasSuffix(p.ID, "-v4") != (p.Family == IPv4 && strings.HasSuffix(p.ID, "-v4")) || strings.HasSuffix(p.ID, "-v6") && p.Family != IPv6 {
			t.Errorf("%s is of family %s", p.ID, p.Family)
		}
		if !p.Control {
			n++
			bypasses[p.Bypass]++
		}
	}
	if n < 60 {
		t.Errorf("%d probes, want at least 60", n)
	}
	for _, b := range Bypasses() {
		if bypasses[b] == 0 {
			t.Errorf("no probe for: %s", b)
		}
	}
	for _, group := range []string{"address/https", "dns/other-resolver-udp", "tls/allowed-sni-to-attacker", "live/direct-tcp", "crash/direct-udp", "kernel/source-mac", "kernel/vlan"} {
		if !seen[group+"-v4"] || !seen[group+"-v6"] {
			t.Errorf("%s does not exist for both versions of IP", group)
		}
	}
	if other := Probes("bbb"); !slices.EqualFunc(list, other, func(a, b Probe) bool { return a.ID == b.ID && a.token != b.token }) {
		t.Error("two lists differ in more than their tokens, or in less")
	}
}

// TestHostileKernel runs the scene of the hostile kernel, which needs no VM. Type rawFence and package simnet describe
// the topology.
func TestHostileKernel(t *testing.T) {
	t.Parallel()
	rec := &record{}
	all, err := Suite{Own: "r-own", Recorder: rec, Only: "kernel/*"}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if !o.Holds() {
			t.Errorf("%s: blocked %v, recorded %v: %s", o.ID, o.Blocked, o.Recorded, o.Detail)
		}
		if o.scene == kernel && !o.Control && rec.events[o.Seq-1].Flow.State != audit.FlowDeny {
			t.Errorf("%s: its evidence is %+v", o.ID, rec.events[o.Seq-1])
		}
	}
	if len(all) < 100 {
		t.Errorf("%d outcomes", len(all))
	}
}

// TestFound: the suite reports a bypass. Allowed frames count as a probe that succeeded, and frames that belong to no
// probe as unexplained.
func TestFound(t *testing.T) {
	t.Parallel()
	c := &catalogue{nonce: "bbb"}
	k := kernelProbes{c}
	k.put("open-v4", IPv4, "a way out", AnyAddress, k.good4().frame())
	k.put("open-v6", IPv6, "a way out", AnyAddress, k.good6().frame())
	k.put("gateway", IPv4, "a socket of the host's", ProxyPort, ip{to: knownSynthetic}.tcp(40020, 443, tcpSYN, c.token()).frame())
	controls{c}.outsiders()
	sent := c.list[3:]
	c.list = append(c.list[:3:3], sent[0])
	c.list[3].token, c.list[3].targets = "nothing", nil
	all, err := Suite{Own: "r-own", Recorder: &record{}}.try(t.Context(), c.nonce, c.list)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.Holds() || o.Detail == "" {
			t.Errorf("%s: blocked %v, recorded %v: %s", o.ID, o.Blocked, o.Recorded, o.Detail)
		}
	}
	if len(all) != 5 || all[4].ID != "unexplained" || !strings.Contains(all[4].Detail, "93.200.") {
		t.Errorf("%d outcomes: %+v", len(all), all[len(all)-1])
	}
}

// record keeps the recorded events.
type record struct {
	mu     sync.Mutex // guards events
	events []audit.Event
}

func (r *record) Record(_ context.Context, ev audit.Event) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	return uint64(len(r.events)), nil
}

// TestScratch: a suite removes the files of suites that were killed, and not those of running ones.
func TestScratch(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	age := func(s *scratch) {
		if err := os.Chtimes(s.dir, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	dead, alive := must(t)(newScratch()), must(t)(newScratch())
	age(dead)
	age(alive)
	dead.lock.Close() // as the end of a process does
	next := must(t)(newScratch())
	if _, err := os.Stat(dead.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead one's: %v", err)
	}
	if _, err := os.Stat(alive.dir); err != nil {
		t.Errorf("the living one's: %v", err)
	}
	if err := errors.Join(alive.remove(), next.remove()); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T) func(*scratch, error) *scratch {
	return func(s *scratch, err error) *scratch {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// FuzzAnswer: no frame makes the parser panic.
func FuzzAnswer(f *testing.F) {
	f.Add(ip{to: knownSynthetic}.tcp(443, 40000, tcpSYN|tcpACK, "").frame())
	f.Add(ip{to: knownSynthetic}.udp(53, 40000, "data").frame())
	f.Add(Probes("x")[len(Probes("x"))-1].frames[0])
	f.Add([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x4f"))
	f.Fuzz(func(t *testing.T, frame []byte) { answer(frame) })
}
