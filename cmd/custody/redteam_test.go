package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam"
)

// The whole suite, as a user calls it. The topology is drawn at the head of the
// packages redteam and redteam/simnet.
func TestRedteam(t *testing.T) {
	t.Parallel()
	newDoor(t).withstands()
}

// withstands attacks sandboxes, and fails the test unless every probe was blocked and recorded.
func (d *door) withstands(flags ...string) {
	d.Helper()
	call := append([]string{"redteam", "--json"}, flags...)
	s := d.custody(call...)
	outcomes := decode[redteam.Outcome](d, s.stdout)
	families := map[redteam.Family]int{}
	for _, o := range outcomes {
		if !o.Holds() {
			d.Errorf("%s: blocked %v, recorded %v, attacked %s: %s", o.ID, o.Blocked, o.Recorded, o.Run, o.Detail)
		}
		if !o.Control {
			families[o.Family]++
		}
	}
	d.exited(0, s, call...)
	if families[redteam.IPv4] < 60 || families[redteam.IPv6] < 60 {
		d.Errorf("probes: %v", families)
	}
	own := d.runs()
	run := own[len(own)-1].ID // the suite's began first
	d.verified(run)
	events := d.records(run, "probe")
	if len(events) != len(outcomes) {
		d.Errorf("%d probe events, %d outcomes", len(events), len(outcomes))
	}
	d.pointsTo(events)
	d.contains(d.must(0, "timeline", run).stdout, "kernel/vlan-v4", "live/direct-tcp-v6")
}

// pointsTo looks up what probe events point to: a record of the attacked run that
// says no, or that the flow was ended, or that something was kept back.
func (d *door) pointsTo(events []audit.Record) {
	d.Helper()
	runs := map[string][]audit.Record{}
	for _, ev := range events {
		p := ev.Probe
		if p.Seq == 0 || strings.HasPrefix(p.Name, "control/") {
			continue
		}
		if runs[p.Run] == nil {
			runs[p.Run] = d.records(p.Run)
			d.verified(p.Run)
		}
		i := slices.IndexFunc(runs[p.Run], func(r audit.Record) bool { return r.Seq == p.Seq })
		if i < 0 {
			d.Errorf("%s: there is no record %d in %s", p.Name, p.Seq, p.Run)
			continue
		}
		switch r := runs[p.Run][i]; r.Kind {
		case audit.KindFlow, audit.KindDNS, audit.KindHTTP, audit.KindFinding, audit.KindRun, audit.KindOutput, audit.KindSecret, audit.KindExec, audit.KindFile:
		default:
			d.Errorf("%s: its evidence is of kind %s", p.Name, r.Kind)
		}
	}
	if len(runs) < 4 {
		d.Errorf("evidence is in %d runs", len(runs))
	}
}

// The suite finds the traffic that a policy allows, over IPv4 and IPv6 and in a real sandbox.
func TestRedteamFinds(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	suite := redteam.Suite{
		Custody: filepath.Join(d.bin, "custody"), Env: d.command().Env, Own: "r-own", Recorder: nowhere{}, Only: "address/[hq]*-v[46]",
		Extra: []string{`{allow: 93.200.0.0/16, ports: [tcp/443, udp/443], mode: direct}`, `{allow: "2600:beef::/32", ports: [tcp/443, udp/443], mode: direct}`},
	}
	outcomes, err := suite.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		through := strings.HasPrefix(o.ID, "address/https-v") || strings.HasPrefix(o.ID, "address/quic-v")
		if o.Blocked == through && !o.Control || o.Control && !o.Holds() {
			t.Errorf("%s: blocked %v, recorded %v: %s", o.ID, o.Blocked, o.Recorded, o.Detail)
		}
	}
}

type nowhere struct{}

func (nowhere) Record(context.Context, audit.Event) (uint64, error) { return 1, nil }

// A suite that is killed leaves no sandbox, process or namespace behind.
func TestRedteamKilled(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.env = []string{"TMPDIR=" + t.TempDir()}
	cmd := d.command("redteam", "--only", "closed/*")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.start(cmd)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "closed") {
	}
	var custody, vm []machine
	eventually(t, "a sandbox under attack", func() bool {
		custody = children(cmd.Process.Pid)
		for _, c := range custody {
			vm = append(vm, machines(c.pid)...)
		}
		return len(vm) > 0
	})
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // the error is the kill
	for _, m := range append(custody, vm...) {
		d.gone(m)
	}
	d.must(0, "runs") // closes what was interrupted
	for _, run := range d.runs() {
		d.verified(run.ID)
	}
}

// children are the processes that a process has started, with the namespaces they are in.
func children(pid int) []machine {
	var all []machine
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(field)
			if space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", child)); err == nil {
				all = append(all, machine{pid: child, started: startOf(child), spaces: []string{space}})
			}
		}
	}
	return all
}

func TestRedteamList(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.contains(d.must(0, "redteam", "--list").stdout, "PROBE", "dns/tunnel-txt", "rebind/gateway-nat64", "kernel/fragment-overlap-v6")
	if all := decode[redteam.Probe](d, d.must(0, "redteam", "--list", "--json", "--only", "tls/*").stdout); len(all) < 20 || all[len(all)-1].Bypass == "" {
		t.Errorf("%d probes", len(all))
	}
	d.contains(d.must(125, "redteam", "--only", "no/such").stderr, "custody: no probe matches")
	d.contains(d.must(125, "redteam", "--only", "[").stderr, "custody:", "syntax error")
}
