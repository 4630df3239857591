package simnet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// simnet.go has a diagram of the topology.

func newNetwork(t *testing.T) *Network {
	t.Helper()
	w, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// dial connects from the host.
func dial(w *Network, network, to string) (c net.Conn, err error) {
	err = w.Do(func() error {
		c, err = (&net.Dialer{Timeout: 3 * time.Second}).Dial(network, to)
		return err
	})
	return c, err
}

func client(w *Network, to netip.AddrPort) *http.Client {
	tr := &http.Transport{
		DialContext:     func(_ context.Context, network, _ string) (net.Conn, error) { return dial(w, "tcp", to.String()) },
		TLSClientConfig: &tls.Config{RootCAs: w.Roots()}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
	}
	return &http.Client{Transport: tr, Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func get(t *testing.T, w *Network, to netip.AddrPort, url string) string {
	t.Helper()
	res, err := client(w, to).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Proto + " " + string(b)
}

func ask(t *testing.T, w *Network, network string, server netip.AddrPort, name string, kind uint16) *dns.Msg {
	t.Helper()
	c, err := dial(w, network, server.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn := &dns.Conn{Conn: c, UDPSize: 4096}
	c.SetDeadline(time.Now().Add(30 * time.Second))
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	if err := conn.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	m, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// All services that a policy may allow work, and their use is not a sighting.
func TestServices(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	for _, a := range []netip.Addr{Allowed4, Allowed6} {
		https, plain := netip.AddrPortFrom(a, 443), netip.AddrPortFrom(a, 80)
		if got := get(t, w, https, "https://"+Allowed+"/x?y"); got != "HTTP/2.0 "+Hello+": "+Allowed+" /x?y\n" {
			t.Errorf("%s: %q", a, got)
		}
		if got := get(t, w, plain, "http://"+Plain+"/z"); !strings.Contains(got, Hello+": "+Plain+" /z") {
			t.Errorf("%s: %q", a, got)
		}
	}
	for _, server := range []netip.AddrPort{Resolver4, Resolver6} {
		for _, network := range []string{"udp", "tcp"} {
			if m := ask(t, w, network, server, "ALLOWED.site.example", dns.TypeA); len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "93.184.10.10") {
				t.Errorf("%s %s: %v", network, server, m)
			}
		}
	}
	for _, a := range []netip.Addr{Direct4, Direct6} {
		for network, port := range map[string]uint16{"tcp": 7000, "udp": 7001} {
			c, err := dial(w, network, netip.AddrPortFrom(a, port).String())
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(30 * time.Second))
			buf := make([]byte, 9)
			fmt.Fprint(c, "over here")
			if n, err := io.ReadFull(c, buf); err != nil || string(buf[:n]) != "over here" {
				t.Errorf("%s %s: %q, %v", network, a, buf[:n], err)
			}
			c.Close()
		}
	}
	if seen := w.Seen(); len(seen) > 0 || w.Lost() > 0 {
		t.Errorf("lost %d, seen: %v", w.Lost(), seen)
	}
	if n := len(w.Queries()); n != 4 {
		t.Errorf("%d queries", n)
	}
	if reqs := w.Requests(); len(reqs) != 8 || reqs[0].SNI != Allowed || reqs[0].URI != "/x?y" || reqs[1].SNI != "" {
		t.Errorf("%d requests: %+v", len(reqs), reqs)
	}
}

// All other packets that leave the host are observed, whatever their destination.
func TestSightings(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	for i, c := range []struct {
		network, to string
		where       Where
		answer      string // "" for none
	}{
		{"tcp", "93.184.66.66:443", AtAttacker, Orders},
		{"tcp", "[2600:dead:66::66]:22", AtAttacker, Orders},
		{"tcp", "8.8.8.8:853", AtAttacker, Orders},
		{"tcp", "169.254.169.254:80", AtAttacker, Orders},
		{"tcp", "[fd00:ec2::254]:80", AtAttacker, Orders},
		{"tcp", "192.168.7.7:8080", AtAttacker, Orders},
		{"tcp", "100.64.0.1:80", AtAttacker, Orders},
		{"tcp", "[64:ff9b::a9fe:a9fe]:80", AtAttacker, Orders},
		{"udp", "93.184.66.66:443", AtAttacker, ""},
		{"udp", "[2600:beef::1]:123", AtAttacker, ""},
		{"udp", "10.99.0.1:7001", AtAttacker, ""},
		{"udp", "93.184.10.10:443", OnWire, ""},
		{"udp", "93.184.0.53:123", OnWire, ""},
		{"tcp", "93.184.10.10:8443", OnWire, ""},
		{"ip4:icmp", "93.184.66.66", AtAttacker, ""},
		{"ip4:icmp", "93.184.10.10", OnWire, ""},
		{"ip6:ipv6-icmp", "2600:beef::2", AtAttacker, ""},
		{"ip4:47", "93.184.66.66", AtAttacker, ""},
		{"tcp", "127.0.0.1:8080", AtHost, HostService},
		{"tcp", "[::1]:22", AtHost, HostService},
		{"tcp", "10.66.0.2:2375", AtHost, HostService},
	} {
		token := fmt.Sprintf("token-%d-", i)
		conn, err := dial(w, c.network, c.to)
		if err != nil {
			t.Errorf("%s %s: %v", c.network, c.to, err)
			continue
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		fmt.Fprint(conn, "GET /......"+token+" HTTP/1.1\r\nHost: h\r\n\r\n")
		if c.answer != "" {
			if b, _ := io.ReadAll(conn); !strings.Contains(string(b), c.answer) {
				t.Errorf("%s %s answers %q", c.network, c.to, b)
			}
		}
		conn.Close()
		eventually(t, fmt.Sprintf("%s %s at %s", c.network, c.to, c.where), func() bool {
			return slices.ContainsFunc(w.Seen(), func(s Sighting) bool {
				return s.Where == c.where && (strings.Contains(s.Text, token) || c.where == AtHost && strings.Contains(c.to, s.Dst.Addr().String()))
			})
		})
	}
	for _, server := range []string{"93.184.0.53:53", "1.1.1.1:53", "[2620:fe::fe]:53"} {
		if m := ask(t, w, "udp", netip.MustParseAddrPort(server), "data."+Attacker, dns.TypeTXT); len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), Orders) {
			t.Errorf("%s: %v", server, m)
		}
	}
	asked := slices.DeleteFunc(w.Seen(), func(s Sighting) bool { return s.Proto != "dns" || s.Text != "data.evil.example TXT" })
	if len(asked) != 3 {
		t.Errorf("queries for the attacker's zone: %v", asked)
	}
}

// Names that resolve to forbidden addresses.
func TestRebinding(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	for kind, list := range Rebinding() {
		var got []netip.Addr
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			m := ask(t, w, "tcp", Resolver4, kind+"-some-token."+Rebind, qtype)
			for _, rr := range m.Answer {
				switch rr := rr.(type) {
				case *dns.A:
					a, _ := netip.AddrFromSlice(rr.A.To4())
					got = append(got, a)
				case *dns.AAAA:
					a, _ := netip.AddrFromSlice(rr.AAAA.To16())
					got = append(got, a)
				}
			}
		}
		want := slices.Clone(list)
		slices.SortFunc(want, netip.Addr.Compare)
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	first := ask(t, w, "udp", Resolver4, "flip-1."+Rebind, dns.TypeA)
	second := ask(t, w, "udp", Resolver4, "flip-1."+Rebind, dns.TypeA)
	if a, b := first.Answer[0].(*dns.A), second.Answer[0].(*dns.A); a.A.String() != "93.184.10.20" || b.A.String() != "10.66.0.2" || a.Hdr.Ttl != 0 {
		t.Errorf("flip: %v, then %v", a, b)
	}
	if m := ask(t, w, "udp", Resolver4, "cname-1."+Rebind, dns.TypeA); len(m.Answer) != 3 {
		t.Errorf("cname: %v", m)
	}
	if m := ask(t, w, "udp", Resolver4, "ech-1."+Rebind, dns.TypeHTTPS); len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), "ech=") {
		t.Errorf("ech: %v", m)
	}
	if m := ask(t, w, "udp", Resolver4, "many."+Rebind, dns.TypeA); !m.Truncated {
		t.Errorf("thousands of addresses fit into a datagram of %d bytes", m.Len())
	}
}

// The data that a client sends to a server is kept even if it is not a valid request.
func TestTalks(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	raw, err := dial(w, "tcp", netip.AddrPortFrom(Allowed4, 443).String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, &tls.Config{RootCAs: w.Roots(), ServerName: Allowed})
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled")
	c.CloseWrite()
	io.Copy(io.Discard, c)
	c.Close()
	eventually(t, "kept what was said", func() bool {
		return slices.ContainsFunc(w.Talks(), func(t Talk) bool { return t.SNI == Allowed && bytes.Contains(t.Said, []byte("GET /smuggled")) })
	})
}

// git clones the repository, from a process in the host's namespace.
func TestClone(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, w.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "-c", "http.sslCAInfo="+ca, "-c", "http.curloptResolve="+Allowed+":443:"+Allowed4.String(),
		"clone", "-q", "https://"+Allowed+"/repo.git", filepath.Join(dir, "repo"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := w.Run(cmd); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "repo", RepoFile)); err != nil || string(b) != RepoText {
		t.Errorf("%q, %v", b, err)
	}
}

// Two networks do not affect each other, and nothing is left after Close.
func TestClose(t *testing.T) {
	t.Parallel()
	a, b := newNetwork(t), newNetwork(t)
	c, err := dial(a, "udp", "93.184.66.66:9")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "only a's")
	c.Close()
	eventually(t, "seen in a", func() bool { return len(a.Seen()) > 0 })
	if seen := b.Seen(); len(seen) > 0 {
		t.Errorf("seen in b: %v", seen)
	}
	inodes := map[string]bool{}
	for _, s := range []*space{b.spaces.site, b.spaces.world, b.spaces.rest} {
		inodes[inode(t, fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()))] = true
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b.spaces = spaces{}
	eventually(t, "let go of the namespaces", func() bool {
		links, _ := filepath.Glob("/proc/self/task/*/ns/net")
		files, _ := filepath.Glob("/proc/self/fd/*")
		return !slices.ContainsFunc(append(links, files...), func(path string) bool {
			id, err := os.Readlink(path)
			return err == nil && inodes[id]
		})
	})
	if _, err := New(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("a network with a cancelled context: %v", err)
	}
}

func inode(t *testing.T, path string) string {
	t.Helper()
	id, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("never: %s", what)
			return
		}
	}
}

// TestRefusedEcho: the host may reject a late echo, which it has requested itself; an ICMP error about any other packet
// is observed.
func TestRefusedEcho(t *testing.T) {
	host, guest := netip.MustParseAddrPort("[2600:dead:1::2]:40000"), netip.MustParseAddrPort("[fdc5:7a1c:19d2::2]:40000")
	echo := netip.AddrPortFrom(Direct6, 7001)
	for _, c := range []struct {
		name             string
		refuses, refuser netip.AddrPort
		want             bool
	}{
		{"its own late echo", echo, host, true},
		{"an echo to the guest", echo, guest, false},
		{"another port", netip.AddrPortFrom(Direct6, 443), host, false},
		{"another host", netip.AddrPortFrom(Quiet6, 7001), host, false},
		{"nothing", netip.AddrPort{}, netip.AddrPort{}, false},
	} {
		p := packet{proto: "icmp6", icmp: 1, src: netip.AddrPortFrom(host.Addr(), 0), dst: netip.AddrPortFrom(Direct6, 0), refuses: c.refuses, refuser: c.refuser}
		if got := isService(p); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// No frame makes the parser fail, and a fragment never counts as a packet for a service.
func FuzzParse(f *testing.F) {
	eth := func(kind string, body string) []byte {
		return []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02" + kind + body)
	}
	f.Add(eth("\x08\x00", "E\x00\x00\x1c\x00\x01\x00\x00\x40\x11\x00\x00\x5d\xb8\x01\x02\x5d\xb8\x00\x35\x12\x34\x00\x35\x00\x08\x00\x00"))
	f.Add(eth("\x08\x00", "E\x00\x00\x1c\x00\x01\x20\x00\x40\x11\x00\x00\x5d\xb8\x01\x02\x5d\xb8\x00\x35\x12\x34\x00\x35\x00\x08\x00\x00"))
	f.Add(eth("\x86\xdd", "\x60\x00\x00\x00\x00\x10\x2c\x40"+strings.Repeat("\x26", 32)+"\x11\x00\x00\x01\x00\x00\x00\x07\x12\x34\x00\x35\x00\x08\x00\x00"))
	f.Add(eth("\x08\x06", strings.Repeat("\x00", 28)))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := parse(frame)
		if p.proto == "" {
			t.Errorf("no protocol: %+v", p)
		}
		if p.fragment && isService(p) {
			t.Errorf("a fragment for a service: %+v", p)
		}
		p.neighbourly()
	})
}

// The LLM API responds at its name, over both protocols and families, only with its key.
func TestModel(t *testing.T) {
	w := newNetwork(t)
	for _, host := range []netip.Addr{LLM4, LLM6} {
		post := func(name, key string) (int, string) {
			long := strings.Repeat("word ", 5000) // a body that is too long for the log; "user" is a word, too
			req, err := http.NewRequest("POST", "https://"+name+"/v1/messages", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"say: hi\n`+long+`"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("x-api-key", key)
			res, err := client(w, netip.AddrPortFrom(host, 443)).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, string(b)
		}
		if status, text := post(LLM, w.ModelKey()); status != 200 || !strings.Contains(text, `"text":"hi"`) || !strings.Contains(text, `"input_tokens":5003`) {
			t.Error(status, text)
		}
		if status, text := post(LLM, "placeholder"); status != 401 {
			t.Error(status, text)
		}
		if _, text := post(API, w.ModelKey()); !strings.Contains(text, Hello) {
			t.Error(text)
		}
	}
	if served := w.Model().Served(); len(served) != 4 || served[0].Key != w.ModelKey() {
		t.Errorf("%+v", served)
	}
	m := ask(t, w, "udp", Resolver4, LLM, dns.TypeA)
	if len(m.Answer) != 1 || !strings.Contains(m.Answer[0].String(), LLM4.String()) {
		t.Error(m)
	}
}

// TestHosts: each listed name resolves to its listed addresses, and a server listens on each listed port.
func TestHosts(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	for _, h := range Hosts() {
		name := strings.Replace(h.Name, "*", "any", 1)
		var got []netip.Addr
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			for _, rr := range ask(t, w, "udp", Resolver4, name, kind).Answer {
				switch rr := rr.(type) {
				case *dns.A:
					got = append(got, netip.MustParseAddr(rr.A.String()))
				case *dns.AAAA:
					got = append(got, netip.MustParseAddr(rr.AAAA.String()))
				}
			}
		}
		if !slices.Equal(got, h.Addrs) {
			t.Errorf("%s resolves to %v, but the list has %v", name, got, h.Addrs)
		}
		for _, addr := range h.Addrs {
			for _, port := range h.Ports {
				network, number, _ := strings.Cut(port, "/")
				c, err := dial(w, network, net.JoinHostPort(addr.String(), number))
				if err != nil {
					t.Errorf("%s at %s, %s: %v", name, addr, port, err)
					continue
				}
				if network == "udp" {
					c.SetDeadline(time.Now().Add(30 * time.Second))
					buf := make([]byte, 5)
					fmt.Fprint(c, "hello")
					if _, err := io.ReadFull(c, buf); err != nil {
						t.Errorf("%s at %s, %s: %v", name, addr, port, err)
					}
				}
				c.Close()
			}
		}
	}
}

// TestUseResolver: programs on the network's host resolve its names without a configured resolver, and programs
// elsewhere do not.
func TestUseResolver(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip(err)
	}
	w := newNetwork(t)
	if err := w.UseResolver(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("getent", "ahostsv4", API)
	cmd.Stdout = &out
	if err := w.Run(cmd); err != nil || !strings.HasPrefix(out.String(), API4.String()) {
		t.Errorf("%v, %s", err, out.String())
	}
	if after, err := os.ReadFile("/etc/resolv.conf"); err != nil || !bytes.Equal(after, before) {
		t.Errorf("outside it is %q, %v", after, err)
	}
	if seen := w.Seen(); len(seen) > 0 {
		t.Errorf("seen: %v", seen)
	}
}
