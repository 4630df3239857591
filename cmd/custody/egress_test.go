package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// The tests of this file use the program on a host of its own in a simulated
// internet; package simnet draws it.

// newSite returns a user on the world's host. The world's authority is trusted
// there, and a workspace holds its certificate for the guest.
func newSite(t *testing.T) (*door, *simnet.Network) {
	t.Helper()
	d := newDoor(t)
	return d, d.onSite()
}

// onSite moves the user to the world's host.
func (d *door) onSite() *simnet.Network {
	d.Helper()
	w, err := simnet.New(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		if err := w.Close(); err != nil {
			d.Error(err)
		}
	})
	d.launch = w.Start
	ca := filepath.Join(d.dir, "ca.pem")
	d.write(ca, string(w.CA()))
	d.env = append(d.env, "SSL_CERT_FILE="+ca)
	return w
}

// worldResolvers is the line of custody.yaml that names the world's resolver.
const worldResolvers = "resolvers: [\"udp://93.184.0.53\"]\n"

func rules(lines ...string) string {
	return "version: 1\n" + worldResolvers + "egress:\n" + strings.Join(lines, "\n") + "\n"
}

// flows returns a run's flow events in a state, as the host observed them.
func (d *door) flows(run string, state audit.FlowState) []audit.Flow {
	d.Helper()
	var all []audit.Flow
	for _, r := range d.records(run, "flow") {
		if r.Observer == audit.Host && r.Flow.State == state {
			all = append(all, *r.Flow)
		}
	}
	return all
}

// TestAllowedFetch: what the policy names is reached over TLS, by curl and git;
// the record says by whom, how, and why it could.
func TestAllowedFetch(t *testing.T) {
	d, w := newSite(t)
	d.project(rules("  - allow: " + simnet.Allowed))
	s := d.must(0, "run", "--workdir", d.dir, "--", "sh", "-ec", `
		curl -sS --cacert ca.pem https://`+simnet.Allowed+`/page
		git -c http.sslCAInfo=/workspace/ca.pem clone -q https://`+simnet.Allowed+`/repo.git copy
		cat copy/`+simnet.RepoFile)
	d.contains(s.stdout, simnet.Hello)

	asked := false
	for _, r := range d.records("last", "dns") {
		if r.DNS.Type == "A" && r.DNS.Synthetic {
			asked = true
			if r.DNS.Name != simnet.Allowed || r.DNS.Verdict != audit.Allow || len(r.DNS.Answers) != 1 || r.DNS.Rule != simnet.Allowed+" tcp/443" {
				t.Errorf("the question is recorded as %+v", *r.DNS)
			}
		}
	}
	if !asked {
		t.Error("the record has no question for the name")
	}
	opened, closed := d.flows("last", audit.FlowOpen), d.flows("last", audit.FlowClose)
	if len(opened) < 2 || len(opened) != len(closed) {
		t.Fatalf("%d flows were opened and %d closed", len(opened), len(closed))
	}
	for _, f := range closed {
		if f.Name != simnet.Allowed || f.Rule != simnet.Allowed+" tcp/443" || f.DNSSeq == 0 || f.BytesIn < 1000 || f.BytesOut < 500 || f.Proc == "" || f.DurationNS == 0 {
			t.Errorf("a flow's end is recorded as %+v", f)
		}
	}
	d.contains(d.must(0, "timeline", "last").stdout, simnet.Allowed, "curl")
	d.verified("last")
	if seen := w.Seen(); len(seen) > 0 {
		t.Errorf("something else got out: %v", seen)
	}
}

// TestDeniedFetch: everything else fails soon and with a reason, in the sandbox
// and in the record, and no one outside hears of it.
func TestDeniedFetch(t *testing.T) {
	d, w := newSite(t)
	d.project(rules("  - allow: "+simnet.Allowed, "  - {allow: "+simnet.API+", http: {methods: [GET], paths: [/v1/*]}}"))
	s := d.must(0, "run", "--workdir", d.dir, "--", "sh", "-c", `
		try() { echo "== $1"; shift; "$@" 2>&1; echo "exit $?"; }
		try name curl -sS -m 60 https://`+simnet.Attacker+`/
		try address curl -sSk -m 60 https://`+simnet.Attacker4.String()+`/
		try address6 curl -sSk -m 60 'https://[`+simnet.Attacker6.String()+`]/'
		try port curl -sSk -m 60 https://`+simnet.Allowed+`:8443/
		try front curl -sSk -m 60 --connect-to `+simnet.Fronted+`:443:`+simnet.Allowed+`:443 https://`+simnet.Fronted+`/
		try method curl -sS -m 60 -X DELETE https://`+simnet.API+`/v1/x
		try path curl -sS -m 60 https://`+simnet.API+`/admin
		try allowed curl -sS -m 60 https://`+simnet.API+`/v1/x`)
	out := strings.Split(s.stdout, "== ")
	if len(out) != 9 {
		t.Fatalf("the script said %s", s.stdout)
	}
	for _, part := range out[1:6] {
		if strings.Contains(part, "exit 0") || strings.Contains(part, "exit 28") { // 28: curl waited in vain
			t.Errorf("not refused, or not at once: %s", part)
		}
	}
	for _, part := range out[6:8] {
		d.contains(part, `"error"`, `"rule"`, `"run"`, `"seq"`)
	}
	d.contains(out[8], simnet.Hello, "exit 0")

	denied := d.flows("last", audit.FlowDeny)
	for _, want := range []string{simnet.Attacker4.String(), simnet.Attacker6.String()} {
		found := false
		for _, f := range denied {
			found = found || f.DstIP == want && f.Verdict == audit.Deny && f.Rule == "default" && f.Reason != ""
		}
		if !found {
			t.Errorf("no denial of %s in %+v", want, denied)
		}
	}
	var statuses []int
	for _, r := range d.records("last", "http") {
		statuses = append(statuses, r.HTTP.Status)
	}
	if len(statuses) != 3 || statuses[0] != 403 || statuses[1] != 403 || statuses[2] != 200 {
		t.Errorf("requests are recorded with status %v", statuses)
	}
	d.verified("last")
	if seen := w.Seen(); len(seen) > 0 {
		t.Errorf("something got out: %v", seen)
	}
}

// download starts a run that fetches without end and returns when bytes flow.
func (d *door) download(w *simnet.Network, script string) (*exec.Cmd, *bytes.Buffer) {
	d.Helper()
	cmd := d.command("run", "--workdir", d.dir, "--", "sh", "-c", script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	d.start(cmd)
	eventually(d.T, "begun: the download", func() bool { return len(w.Requests()) > 0 })
	time.Sleep(300 * time.Millisecond) // some of it
	return cmd, &out
}

// TestRevoke: a policy that no longer names the host ends its open downloads,
// through the gateway and past it, and the record has the bytes.
func TestRevoke(t *testing.T) {
	for name, c := range map[string]struct{ rule, script string }{
		"gateway": {"  - allow: " + simnet.Allowed, `curl -sS --cacert ca.pem -o /dev/null https://` + simnet.Allowed + `/big; echo "curl: $?"`},
		"http":    {"  - {allow: " + simnet.API + ", http: {methods: [GET]}}", `curl -sS -o /dev/null https://` + simnet.API + `/big; echo "curl: $?"`},
		"direct":  {"  - {allow: " + simnet.Allowed + ", mode: direct}", `curl -sS --cacert ca.pem -o /dev/null https://` + simnet.Allowed + `/big; echo "curl: $?"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, w := newSite(t)
			d.project(rules(c.rule))
			cmd, out := d.download(w, c.script)
			d.write(filepath.Join(d.dir, "less.yaml"), "version: 1\n")
			set := d.must(0, "policy", "set", "--trust", "last", "less.yaml")
			d.contains(set.stdout, "generation 2", "flows ended: 1")
			at := time.Now()
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if strings.Contains(out.String(), "curl: 0") || time.Since(at) > time.Minute {
				t.Errorf("after %v: %s", time.Since(at), out)
			}
			revoked := d.flows("last", audit.FlowRevoke)
			if len(revoked) != 1 || revoked[0].BytesIn < 16<<10 || revoked[0].Generation == 0 {
				t.Fatalf("revoked flows: %+v", revoked)
			}
			policies := d.records("last", "policy")
			if len(policies) != 2 || policies[1].Policy.Previous != policies[0].Policy.Digest {
				t.Errorf("policies: %+v", policies)
			}
			d.verified("last")
		})
	}
}
