package ship

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/vishvananda/netns"

	"github.com/custody-project/custody/store/sqlite"
)

// Three servers, and a machine with hosts and ingesters, each in a separate network namespace,
// on a bridge in a fifth:
//
//	+- hub -----------------------------------+
//	|  bridge br0                             |
//	|   | p1        | p2        | p3     | p4 |
//	+---|-----------|-----------|--------|----+
//	    |           |           |        |
//	+- n1 ----+ +- n2 ----+ +- n3 ---+ +- n4 -----------+
//	| eth     | | eth     | | eth    | | eth            |
//	| 10.77.  | | 10.77.  | | 10.77. | | 10.77.0.4      |
//	| 0.1     | | 0.2     | | 0.3    | | hosts,         |
//	| nats    | | nats    | | nats   | | ingesters      |
//	+---------+ +---------+ +--------+ +----------------+
//
// To disconnect one, its port on the bridge is set down.
type cluster struct {
	t       *testing.T
	prefix  string
	servers []*natsServer
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, prefix: fmt.Sprintf("custody-ship-%d-", os.Getpid())}
	c.sweep()
	t.Cleanup(func() {
		for _, s := range c.servers {
			s.kill()
		}
		for _, ns := range []string{"hub", "n1", "n2", "n3", "n4"} {
			_ = exec.Command("ip", "netns", "del", c.prefix+ns).Run()
		}
	})
	c.ip("netns", "add", c.prefix+"hub")
	c.ip("-n", c.prefix+"hub", "link", "add", "br0", "type", "bridge")
	c.ip("-n", c.prefix+"hub", "link", "set", "br0", "up")
	var routes []string
	for i := 1; i <= 4; i++ {
		c.machine(i)
		routes = append(routes, fmt.Sprintf("nats://10.77.0.%d:6222", i))
	}
	for i := 1; i <= 3; i++ {
		s := &natsServer{t: t, dir: t.TempDir(), addr: fmt.Sprintf("10.77.0.%d", i), wrap: c.in(i)}
		s.configure(alwaysSync, fmt.Sprintf("server_name: n%d\ncluster { name: fleet, listen: \"%s:6222\", routes: [%s] }", i, s.addr, strings.Join(routes[:3], ", ")))
		s.start()
		c.servers = append(c.servers, s)
	}
	return c
}

// sweep removes the namespaces of tests that were killed.
func (c *cluster) sweep() {
	c.t.Helper()
	left, err := filepath.Glob("/run/netns/custody-ship-*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range left {
		var pid int
		if n, _ := fmt.Sscanf(filepath.Base(path), "custody-ship-%d-", &pid); n != 1 {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); errors.Is(err, os.ErrNotExist) {
			c.ip("netns", "del", filepath.Base(path))
		}
	}
}

func (c *cluster) ip(args ...string) {
	c.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		c.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (c *cluster) machine(i int) {
	c.t.Helper()
	ns, port := fmt.Sprint(c.prefix, "n", i), fmt.Sprint("p", i)
	c.ip("netns", "add", ns)
	c.ip("-n", c.prefix+"hub", "link", "add", port, "type", "veth", "peer", "name", "eth", "netns", ns)
	c.ip("-n", c.prefix+"hub", "link", "set", port, "master", "br0", "up")
	c.ip("-n", ns, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i), "dev", "eth")
	c.ip("-n", ns, "link", "set", "lo", "up")
	c.ip("-n", ns, "link", "set", "eth", "up")
}

// in returns the prefix of a command that runs on machine i.
func (c *cluster) in(i int) []string {
	return []string{"ip", "netns", "exec", fmt.Sprint(c.prefix, "n", i)}
}

func (c *cluster) cut(i int)  { c.ip("-n", c.prefix+"hub", "link", "set", fmt.Sprint("p", i), "down") }
func (c *cluster) heal(i int) { c.ip("-n", c.prefix+"hub", "link", "set", fmt.Sprint("p", i), "up") }

func (c *cluster) url() string {
	var urls []string
	for _, s := range c.servers {
		urls = append(urls, s.url())
	}
	return strings.Join(urls, ",")
}

// dialer connects from machine 4.
type dialer struct{ ns string }

// Dial implements nats.CustomDialer. The thread returns to its namespace: if it ended, the
// servers that were started from it would be killed (Pdeathsig).
func (d dialer) Dial(network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer home.Close()
	there, err := netns.GetFromName(d.ns)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout(network, address, time.Second)
	if back := netns.Set(home); back != nil {
		return nil, errors.Join(err, back) // the thread stays locked, and ends
	}
	runtime.UnlockOSThread()
	return conn, err
}

// watch is a separate connection of the test.
func (c *cluster) watch() jetstream.JetStream {
	c.t.Helper()
	conn, err := nats.Connect(c.url(), nats.SetCustomDialer(dialer{c.prefix + "n4"}), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.PingInterval(500*time.Millisecond), nats.MaxPingsOutstanding(2))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		c.t.Fatal(err)
	}
	return js
}

// leader returns the number of the server that leads the stream.
func (c *cluster) leader(js jetstream.JetStream) (number int) {
	c.t.Helper()
	if err := waitFor(c.t, func() error {
		stream, err := js.Stream(c.t.Context(), streamName)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		if info.Config.Replicas != 3 || info.Cluster == nil || info.Cluster.Leader == "" {
			return fmt.Errorf("stream with %d replicas, %+v", info.Config.Replicas, info.Cluster)
		}
		_, err = fmt.Sscanf(info.Cluster.Leader, "n%d", &number)
		return err
	}); err != nil {
		c.t.Fatal(err)
	}
	return number
}

// settled waits until all three servers have the whole stream. A disconnected one takes time.
func (c *cluster) settled(js jetstream.JetStream) {
	c.t.Helper()
	if err := waitLong(c.t, 90*time.Second, func() error {
		stream, err := js.Stream(c.t.Context(), streamName)
		if err != nil {
			return err
		}
		peers := stream.CachedInfo().Cluster.Replicas
		for _, p := range peers {
			if !p.Current || p.Offline || p.Lag > 0 {
				return fmt.Errorf("%s is behind: %+v", p.Name, *p)
			}
		}
		if len(peers) != 2 {
			return fmt.Errorf("%d peers", len(peers))
		}
		return nil
	}); err != nil {
		c.t.Fatal(err)
	}
}

// TestCluster: the leader of the stream is disconnected for a while, later another server is killed and loses its disk,
// while segments are published and not ingested. In the end the store has everything that was acknowledged.
//
// That holds for one fault at a time: a server that is behind and one that has lost its disk can form a majority, and the
// servers then lose what they have acknowledged. From the second round on (CUSTODY_ROUNDS) the test does not wait for the
// servers to catch up, and the host sends again what the store does not have.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	signer, _ := hostKey(t, "h1")
	js := c.watch()
	path := filepath.Join(t.TempDir(), "store.db")
	for round := range rounds(1) {
		segs := sealedRun(t, signer, "acme", "h1", fmt.Sprint("r-", round), 3000, 10)
		big := largest(t, signer, fmt.Sprint("r-big-", round))
		all := slices.Concat(segs[:60], big, segs[60:])
		env := []string{"CUSTODY_SHIP_URL=" + c.url(), "CUSTODY_SHIP_SEGMENTS=" + writeSegments(t, all)}
		if round > 0 {
			env = append(env, "CUSTODY_SHIP_AGAIN=yes")
		}
		host := beginIn(t, c.in(4), "host", env...)
		host.waitAcked(30)
		cut := c.leader(js)
		c.cut(cut)
		host.waitAcked(120) // without it
		c.heal(cut)
		if round == 0 {
			c.settled(js)
		}
		lost := c.leader(js)
		c.servers[lost-1].kill()
		if err := os.RemoveAll(c.servers[lost-1].dir + "/js"); err != nil {
			t.Fatal(err)
		}
		c.servers[lost-1].start()
		host.waitAcked(len(all))

		ingest := beginIn(t, c.in(4), "ingest", "CUSTODY_SHIP_URL="+c.url(), "CUSTODY_SHIP_DB="+path)
		host.wait(90 * time.Second)
		host.mu.Lock()
		if host.started != 1 {
			t.Errorf("the host was started %d times: %s", host.started, host.stderr.String())
		}
		t.Logf("n%d was cut off, n%d lost its disk; the host says: %s", cut, lost, host.stderr.String())
		host.mu.Unlock()
		ingest.stop()
		db, err := sqlite.OpenReader(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		wantExactly(t, db, segs)
		wantExactly(t, db, big)
		db.Close()
		c.settled(js)
	}
}
