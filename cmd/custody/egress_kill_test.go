package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/custody-project/custody/redteam/simnet"
)

// TestKilledWithFlowsOpen: kill -9 of custody stops what flows, through the
// gateway and past it, and after any other command nothing of the sandbox's network is left.
func TestKilledWithFlowsOpen(t *testing.T) {
	d, w := newSite(t)
	d.project(rules("  - allow: "+simnet.Allowed, "  - {allow: "+simnet.Direct+", ports: [tcp/7000, udp/7001], mode: direct}"))
	const script = `
		curl -sS --cacert ca.pem -o /dev/null https://` + simnet.Allowed + `/big &
		python3 -c 'import socket, time
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.connect(("` + simnet.Direct + `", 7001))
while True: u.send(b"still here"); time.sleep(0.01)' &
		wait`
	if err := w.Do(func() error { // this host has no containers
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0), os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("0"), 0))
	}); err != nil {
		t.Fatal(err)
	}
	forwarded := forwarding(t, w)
	cmd, _ := d.download(w, script)
	eventually(t, "begun: the direct flow", func() bool { return echoes(w) > 3 })
	if left := leftovers(t, w); !strings.Contains(left, "cust") {
		t.Errorf("a direct rule made no link on the host: %s", left)
	}
	if forwarding(t, w) == forwarded {
		t.Errorf("a direct rule changed nothing of what the host forwards: %s", forwarded)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	time.Sleep(50 * time.Millisecond) // what was on its way
	before := echoes(w)
	time.Sleep(500 * time.Millisecond)
	if after := echoes(w); after != before {
		t.Errorf("%d datagrams got out after custody was killed", after-before)
	}
	d.must(0, "version")
	if left, now := leftovers(t, w), forwarding(t, w); left != "" || now != forwarded {
		t.Errorf("left on the host: %s; it forwarded\n%sand forwards\n%s", left, forwarded, now)
	}
	d.must(0, "runs")
	for _, r := range d.runs() {
		d.verified(r.ID)
	}
}

// forwarding returns the forwarding settings of the simulated internet's host.
func forwarding(t *testing.T, w *simnet.Network) string {
	t.Helper()
	var b strings.Builder
	err := w.Do(func() error {
		files, err := filepath.Glob("/proc/sys/net/ipv*/conf/*/*forwarding")
		for _, f := range files {
			if name := filepath.Base(filepath.Dir(f)); !strings.HasPrefix(name, "cust") {
				v, _ := os.ReadFile(f)
				fmt.Fprintf(&b, "%s %s", f, v)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// echoes counts the data that the echo server of the direct flow received.
func echoes(w *simnet.Network) int {
	n := 0
	for _, r := range w.Requests() {
		if r.Proto == "echo" {
			n++
		}
	}
	return n
}

// leftovers names the links and tables on the world's host that are custody's.
func leftovers(t *testing.T, w *simnet.Network) string {
	t.Helper()
	var left []string
	err := w.Do(func() error {
		links, err := net.Interfaces()
		for _, l := range links {
			if strings.HasPrefix(l.Name, "cust") {
				left = append(left, l.Name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(w.Site().Fd())))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		left = append(left, "table "+table.Name)
	}
	return strings.Join(left, " ")
}
