package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/browser"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay"
)

// The tests of this file and of browser_*_test.go look at runs as a reviewer does: in Chromium, through
// the link that custody serve prints. What a page shows is compared with what the command line says.

// elsewhere is the same user in a directory without custody.yaml, outside of any simulated internet.
func (d *door) elsewhere() *door {
	d.Helper()
	return &door{T: d.T, home: d.home, bin: d.bin, dir: d.TempDir()}
}

// TestBrowser: the run of examples/agent, in at most three clicks an answer, and what the browser shows is
// what the command line says.
func TestBrowser(t *testing.T) {
	t.Parallel()
	d, w := newSite(t)
	example := filepath.Join("..", "..", "examples", "agent")
	policy, err := os.ReadFile(filepath.Join(example, "custody.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	work, err := filepath.Abs(filepath.Join(example, "work"))
	if err != nil {
		t.Fatal(err)
	}
	d.project(string(policy))
	d.env = append(d.env, "WORLD_LLM_KEY="+w.ModelKey())
	d.must(0, "run", "-q", "--workdir", work)
	run := d.runs()[0].ID

	s := d.elsewhere().serving("--run", "last")
	p := browser.Open(t, s.link, 1440, 900)
	v := viewer{door: s.door, Page: p, name: run}
	p.WaitTextIn("h1", run)
	if at := browser.Eval[string](p, "location.href"); strings.Contains(at, "once") || strings.Contains(at, "cso_") {
		t.Errorf("the address bar still has the token: %s", at)
	}
	v.run("an instant", viewer.anInstant)
	v.run("a denial", viewer.aDenial)
	v.run("a secret", viewer.aSecret)
	v.run("a proof", viewer.aProof)
	v.run("the same state", viewer.theSameState)
	other := sampleruns.Record(t, d.home, sampleruns.Large(2000))
	v.run("pictures", func(v viewer) {
		places := slices.DeleteFunc(spots(v.name, other), func(s spot) bool { return s.name == "run-findings" })
		places = append(places, spot{"run-findings", "#/runs/" + other + "?panel=findings"}) // the agent's run has none
		pictures(v.door.T, v.Page, places)
	})
}

// viewer is a user who views a run in a browser.
type viewer struct {
	*door
	*browser.Page
	name string // the run's
}

// run runs a part of the test as a subtest.
func (v viewer) run(name string, part func(viewer)) {
	v.T.Run(name, func(t *testing.T) {
		d := *v.door
		d.T = t
		part(viewer{&d, v.Page.In(t), v.name})
	})
}

// open shows the run again, with parameters of its address such as "panel", "files".
func (v viewer) open(params ...string) {
	v.door.Helper()
	q := url.Values{}
	for i := 0; i < len(params); i += 2 {
		q.Set(params[i], params[i+1])
	}
	browser.Eval[bool](v.Page, `location.hash = "#/runs", true`)
	v.WaitTextIn("h1", "Runs")
	browser.Eval[bool](v.Page, `location.hash = `+browser.Quote("#/runs/"+v.name+"?"+q.Encode())+`, true`)
	v.WaitTextIn("h1", v.name)
	v.Wait(`document.querySelector(".tabpanel") && !document.querySelector(".tabpanel .loading")`)
}

// within fails the test if more than three clicks were needed since there were so many.
func (v viewer) within(since int) {
	v.T.Helper()
	if n := v.Clicks() - since; n > 3 {
		v.T.Errorf("%d clicks were needed, want three at the most", n)
	}
}

// anInstant: one click into the lanes describes what ran then.
func (v viewer) anInstant() {
	v.open()
	var agent audit.Record
	for _, r := range v.records(v.name, "exec") {
		if len(r.Exec.Argv) > 1 && strings.Contains(string(r.Exec.Argv[1]), "agent_anthropic.py") {
			agent = r
		}
	}
	if agent.Seq == 0 {
		v.T.Fatal("the agent's exec is not in the record")
	}
	run := v.runs()[0]
	share := float64(agent.Time.Add(500*time.Millisecond).Sub(run.Start)) / float64(run.End.Sub(run.Start))
	v.Wait(`document.querySelector(".lanes canvas")?.width > 0 && !document.querySelector(".under-words").innerText.startsWith("Reading")`)
	plot := browser.Eval[[]float64](v.Page, `(b => [b.left, b.top, b.width])(document.querySelector(".lanes .plot").getBoundingClientRect())`)
	clicks := v.Clicks()
	v.ClickAt(plot[0]+share*plot[2], plot[1]+10) // on the axis
	v.WaitTextIn(".panel.state", "agent_anthropic.py", "running", "as the guest claims", "Live secrets", "model")
	v.within(clicks)
}

// aDenial: the connection to an address that no rule names, why it was denied, and by which policy.
func (v viewer) aDenial() {
	v.open()
	digest := v.records(v.name, "policy")[0].Policy.Digest
	clicks := v.Clicks()
	v.ClickText("[role=tab]", "Network")
	v.ClickWith(".panel .td", "93.184.66.66")
	v.WaitTextIn(".details", "93.184.66.66", "denied", "default")
	v.ClickOn(`document.querySelector(".details a.seq")`)
	v.WaitTextIn(".panel.record", "Why", "denied", "host saw", digest, "93.184.66.66")
	v.within(clicks)
	for _, r := range v.records(v.name, "flow") {
		if r.Flow.DstIP == "93.184.66.66" && r.Flow.State == audit.FlowDeny {
			v.WaitTextIn(".panel.record", r.Flow.Rule, r.Flow.Reason)
		}
	}
}

// aSecret: which step held the model's key, and for how long.
func (v viewer) aSecret() {
	v.open()
	clicks := v.Clicks()
	v.ClickText("[role=tab]", "Secrets")
	v.WaitTextIn(".panel.secrets", "model", "for step agent", "revoked", "lived ", "llm.site.example")
	v.within(clicks)
	var minted, revoked time.Time
	for _, r := range v.records(v.name, "secret") {
		switch {
		case r.Secret.Name == "model" && r.Secret.Op == audit.SecretMint:
			minted = r.Time
		case r.Secret.Op == audit.SecretRevoke && revoked.IsZero():
			revoked = r.Time
		}
	}
	lived := browser.Eval[string](v.Page, `[...document.querySelectorAll(".life-of")].find(e => e.querySelector("h2").innerText.startsWith("model")).querySelector("h2 .num").innerText`)
	length, err := time.ParseDuration(strings.ReplaceAll(strings.TrimPrefix(lived, "lived "), " ", ""))
	if err != nil || (length-revoked.Sub(minted)).Abs() > 50*time.Millisecond {
		v.T.Errorf("the page says %q, the record has %s from mint to revoke: %v", lived, revoked.Sub(minted), err)
	}
}

// aProof: a record's proof is checked in the browser, under the host's key.
func (v viewer) aProof() {
	v.open()
	clicks := v.Clicks()
	v.ClickOn(`(rows => rows[rows.length >> 1])(document.querySelectorAll(".records .rrow"))`) // any that is in sight
	v.ClickText(".panel.record button", "Verify its proof")
	v.WaitTextIn(".proof", "Consistent only", "Record", "Segment's tree", "Signed manifest", "Host's log", "Checkpoint", "Fingerprint")
	v.ClickText(".proof button", "I have compared the fingerprint")
	v.WaitTextIn(".proof .verdict", "Proof holds")
	v.within(clicks)
}

// theSameState: at each of these instants the page, the API and custody timeline --at have the same state.
func (v viewer) theSameState() {
	run := v.runs()[0]
	length := run.End.Sub(run.Start)
	for _, share := range []int{0, 20, 45, 60, 75, 90, 100} {
		at := fmt.Sprintf("+%.3f000s", (length * time.Duration(share) / 100).Truncate(time.Millisecond).Seconds())
		var said replay.State
		if err := json.Unmarshal([]byte(v.must(0, "timeline", v.name, "--at", at, "--json").stdout), &said); err != nil {
			v.T.Fatal(err)
		}
		api := browser.Eval[replay.State](v.Page, `fetch(`+browser.Quote("/api/v1/runs/"+v.name+"/state?lines=20&at="+url.QueryEscape(at))+`).then(r => r.json())`)
		if a, b := asJSON(v.T, api), asJSON(v.T, said); a != b {
			v.T.Errorf("at %s the API and the command line differ:\n%s\n%s", at, a, b)
		}
		v.open("at", at, "panel", "state")
		v.WaitTextIn(".panel.state .at", at)
		v.Wait(`!document.querySelector(".panel .stale")`)
		v.shows(at, said)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// shows compares the panel with a state.
func (v viewer) shows(at string, s replay.State) {
	v.T.Helper()
	part := func(title string) []string {
		return browser.Eval[[]string](v.Page, `(s => s ? [...s.querySelectorAll("li .pid, tbody th")].map(e => e.innerText.replace(/\s*in all runs$/, "").trim()) : [])(
			[...document.querySelectorAll(".panel.state section")].find(e => e.querySelector("h2").innerText.startsWith(`+browser.Quote(title)+`)))`)
	}
	var pids, files, flows, secrets, names []string
	var walk func([]*replay.Process)
	walk = func(list []*replay.Process) {
		for _, p := range list {
			pids = append(pids, fmt.Sprint(p.PID))
			walk(p.Children)
		}
	}
	walk(s.Procs)
	for _, f := range s.Files {
		files = append(files, string(f.Path))
	}
	for _, f := range s.Egress.Flows {
		flows = append(flows, fmt.Sprintf("%s:%d %s", f.Name, f.DstPort, f.Proto))
	}
	for _, n := range s.Egress.Names {
		names = append(names, string(n.Name))
	}
	for _, h := range s.Secrets {
		name := h.Name
		if name == "" {
			name = "the step's own token"
		}
		secrets = append(secrets, name)
	}
	for title, want := range map[string][]string{"Processes": pids, "Files written": files, "Open connections": flows, "Names resolved": names, "Live secrets": secrets} {
		if got := part(title); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			v.T.Errorf("at %s: %s: the page shows %q, want %q", at, title, got, want)
		}
	}
	v.WaitTextIn(".panel.state .at", fmt.Sprintf("%d record", s.Events))
}
