package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/netpolicy"
	"github.com/custody-project/custody/project"
	"github.com/custody-project/custody/redact"
)

// writeRun makes a run's record of events, through recorder, log and store.
func writeRun(t *testing.T, h *host.Host, events ...audit.Event) string {
	t.Helper()
	tag, err := h.TagKey()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := h.Begin(ctx, host.RunOptions{ID: host.NewRunID(time.Now()), Mode: wal.Strict, Redactor: redact.New(tag)})
	if err != nil {
		t.Fatal(err)
	}
	r.Ship(ctx)
	code := 0
	events = append([]audit.Event{{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Project: "shop"}}}, events...)
	events = append(events, audit.Event{Kind: audit.KindRun, Lifecycle: &audit.Lifecycle{Phase: audit.PhaseEnd, ExitCode: &code, Status: audit.StatusDone}})
	for _, ev := range events {
		if ev.Time = time.Now().UTC(); ev.Observer == "" {
			ev.Observer = audit.Host
		}
		if _, err := r.Record(ctx, ev); err != nil {
			t.Fatal(err)
		}
	}
	if record, store := r.Close(ctx, wal.Sealed); record != nil || store != nil {
		t.Fatal(record, store)
	}
	return r.ID
}

func dnsEvent(name string, reason netpolicy.Reason, dropped ...string) audit.Event {
	d := &audit.DNS{Name: audit.Text(name), Type: "A", RCode: "NOERROR", Verdict: audit.Allow, Rule: name + " tcp/443", Dropped: dropped}
	if reason != "" {
		d.RCode, d.Verdict, d.Rule, d.Reason = "REFUSED", audit.Deny, "default", string(reason)
	}
	return audit.Event{Kind: audit.KindDNS, DNS: d}
}

func flowEvent(id, name, dst string, port int, proto, reason string) audit.Event {
	f := &audit.Flow{ID: id, State: audit.FlowOpen, Proto: proto, DstIP: dst, DstPort: port, Name: audit.Text(name), Verdict: audit.Allow}
	if reason != "" {
		f.ID, f.State, f.Verdict, f.Reason = "", audit.FlowDeny, audit.Deny, reason
	}
	return audit.Event{Kind: audit.KindFlow, Flow: f}
}

func httpEvent(flow, host, method, path, reason string) audit.Event {
	h := &audit.HTTP{Flow: flow, Method: audit.Text(method), Host: audit.Text(host), Path: audit.Text(path), Verdict: audit.Allow}
	if reason != "" {
		h.Verdict, h.Reason = audit.Deny, reason
	}
	return audit.Event{Kind: audit.KindHTTP, HTTP: h}
}

// learnRules runs the command in the directory of a project file, and returns its standard output and standard error.
func learnRules(t *testing.T, file, run string, flags ...string) (stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if file != "" {
		if err := os.WriteFile(project.Name, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, words bytes.Buffer
	c := policyLearnCmd{Name: run}
	for _, f := range flags {
		switch f {
		case "--keep":
			c.Keep = true
		default:
			c.Policy = f
		}
	}
	a := newApp(t.Context(), nil, &out, &words)
	if code := a.code(c.Run(a)); code != 0 {
		t.Fatalf("exit %d: %s", code, &words)
	}
	if now, err := os.ReadFile(project.Name); file != "" && (err != nil || string(now) != file) {
		t.Errorf("the file was changed: %v", err)
	}
	return out.String(), words.String()
}

// patched applies a diff with patch(1), and returns the resulting file.
func patched(t *testing.T, file, diff string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, project.Name)
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	patch := exec.Command("git", "apply", "-p1", "-")
	patch.Dir, patch.Stdin = dir, strings.NewReader(diff)
	patch.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := patch.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%s", err, out, diff)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func newHome(t *testing.T) *host.Host {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CUSTODY_HOME", dir)
	h, err := host.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

const learnFile = `version: 1
egress:
  # sources
  - allow: github.com
  - allow: "*.pypi.org" # packages
  - allow: api.example.com
    http: {methods: [POST], paths: ["/v1/*"]}
limits: {pids: 9}
`

func TestPolicyLearn(t *testing.T) {
	h := newHome(t)
	quiet := writeRun(t, h)
	fine := writeRun(t, h,
		dnsEvent("github.com", ""), flowEvent("f1", "github.com", "198.18.1.0", 443, "tcp", ""),
		dnsEvent("files.pypi.org", ""), flowEvent("f2", "api.example.com", "198.18.1.1", 443, "tcp", ""), httpEvent("f2", "api.example.com", "POST", "/v1/messages?x=1", ""),
		flowEvent("", "github.com", "198.18.1.0", 443, "tcp", "the client asks for another server (SNI) than the destination's name"),
	)
	guest := flowEvent("", "", "203.0.113.66", 4444, "tcp", "")
	guest.Observer, guest.Flow.State = audit.Guest, audit.FlowAttempt
	denied := writeRun(t, h,
		dnsEvent("github.com", ""), flowEvent("f1", "github.com", "198.18.1.0", 443, "tcp", ""), flowEvent("", "github.com", "198.18.1.0", 443, "udp", string(netpolicy.WrongPort)),
		dnsEvent("files.pypi.org", ""), dnsEvent("new.example.org", netpolicy.NoRule), dnsEvent("new.example.org", netpolicy.NoRule),
		dnsEvent("git.example.org", ""), flowEvent("", "git.example.org", "198.18.1.4", 22, "tcp", "the first byte is of neither TLS nor HTTP: give the rule mode: direct"),
		flowEvent("f2", "api.example.com", "198.18.1.1", 443, "tcp", ""), httpEvent("f2", "api.example.com", "GET", "/v1/models?limit=2", string(netpolicy.WrongMethod)),
		httpEvent("f2", "api.example.com", "POST", "/v1/../admin", string(netpolicy.UnclearPath)),
		flowEvent("", "", "192.0.2.9", 53, "udp", string(netpolicy.NoRule)), flowEvent("", "", "169.254.169.254", 80, "tcp", string(netpolicy.NoRule)),
		dnsEvent("a b\x1b[2J.example.org", "not a host name"), guest,
	)

	out, said := learnRules(t, learnFile, quiet)
	if out != "" || !strings.Contains(said, "requested nothing") {
		t.Errorf("quiet: %s%s", out, said)
	}
	out, said = learnRules(t, learnFile, fine)
	if out != "" || !strings.Contains(said, "custody.yaml already allows all traffic of run ") || !strings.Contains(said, "denied under any rules, once: the client asks for another server (SNI)") {
		t.Errorf("fine: %s%s", out, said)
	}

	out, said = learnRules(t, learnFile, denied)
	want := `version: 1
egress:
  # sources
  - allow: github.com
  - allow: 192.0.2.9/32
    ports: [udp/53]
    mode: direct
  - allow: api.example.com
    http: {methods: [GET], paths: ["/v1/*"]}
  - allow: files.pypi.org
  - allow: git.example.org
    ports: [tcp/22]
    mode: direct
  - allow: new.example.org
limits: {pids: 9}
`
	if got := patched(t, learnFile, out); got != want {
		t.Errorf("smallest:\n%s", got)
	}
	for _, line := range []string{
		"custody: not learnt: api.example.com tcp/443 POST /v1/../admin: ", "custody: not learnt: 169.254.169.254 tcp/80: ",
		"custody: QUIC (udp/443) was left out, once", "custody: denied under any rules, once: not a host name\n",
		"custody: warning: b/custody.yaml:5:5: udp/53 to 192.0.2.9/32 can resolve any name", "read each line before you take it",
	} {
		if !strings.Contains(said, line) {
			t.Errorf("nothing says %q:\n%s", line, said)
		}
	}
	if strings.Contains(out+said, "\x1b") || strings.Contains(out, "203.0.113.66") {
		t.Errorf("the guest has had its say:\n%s%s", out, said)
	}

	out, _ = learnRules(t, learnFile, denied, "--keep")
	kept := patched(t, learnFile, out)
	if want := strings.Replace(learnFile, "limits:", `  - allow: 192.0.2.9/32
    ports: [udp/53]
    mode: direct
  - allow: api.example.com
    http: {methods: [GET], paths: ["/v1/*"]}
  - allow: git.example.org
    ports: [tcp/22]
    mode: direct
  - allow: new.example.org
limits:`, 1); kept != want {
		t.Errorf("kept:\n%s", kept)
	}
	for _, file := range []string{want, kept} {
		if out, said := learnRules(t, file, denied); out != "" || !strings.Contains(said, "custody.yaml already allows all traffic of run ") {
			t.Errorf("learnt again: %s%s", out, said)
		}
	}

	out, _ = learnRules(t, "", denied)
	if f, err := project.Parse("new", []byte(patched(t, "", out))); err != nil || len(f.Egress) != 6 {
		t.Errorf("a new file: %v %v", f.Egress, err)
	}
}
