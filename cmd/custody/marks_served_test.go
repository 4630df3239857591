package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/store"
)

// TestMarksServed: results of a search over the API are marked if they differ from what was signed; so are findings and
// accesses.
func TestMarksServed(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	h, err := host.Open(d.home)
	if err != nil {
		t.Fatal(err)
	}
	genuine, altered := pastRun(t, h, host.NewRunID(time.Now())), pastRun(t, h, host.NewRunID(time.Now()))
	s := d.serving()
	s.token = d.newToken("auditor", "auditor")
	type hit struct {
		Run  string
		Seq  uint64
		Mark *store.Mark `json:"verification"`
	}
	type page struct{ Hits, Findings, Access []hit }
	states := func(path string) map[string]store.State {
		t.Helper()
		found := got[page](s, path)
		all := map[string]store.State{}
		for _, one := range append(append(found.Hits, found.Findings...), found.Access...) {
			if one.Mark == nil {
				all[one.Run] = store.Holds
			} else if all[one.Run] = one.Mark.State; one.Mark.Text == "" {
				t.Errorf("%s: no reason: %+v", path, one)
			}
		}
		return all
	}
	const everything = "search?kind=output&from=2026-01-01T00:00:00Z"
	if all := states(everything); len(all) != 2 || all[genuine] != store.Holds || all[altered] != store.Holds {
		t.Errorf("nothing is altered: %v", all)
	}
	d.sqlite("UPDATE records SET path = '/etc/passwd' WHERE run = '" + altered + "'")
	if all := states("search?path=/etc/passwd"); all[altered] != store.Fails {
		t.Errorf("a column is altered: %v", all)
	}
	if all := states(everything); all[genuine] != store.Holds || all[altered] != store.Fails {
		t.Errorf("a column is altered: %v", all)
	}
	status, file := s.ask("GET", "runs/"+altered+"/export", nil)
	if status != http.StatusOK || !strings.Contains(string(file), `"verification":{"state":"fails"`) {
		t.Errorf("an export of an altered run: %d %s", status, file)
	}
	if _, body := s.ask("GET", "runs/"+genuine+"/export?format=ocsf", nil); strings.Contains(string(body), `"verification"`) {
		t.Errorf("an export of a genuine run is marked: %s", body)
	}
	for format, want := range map[string]int{"csv": http.StatusConflict, "perfetto": http.StatusConflict, "ocsf": http.StatusOK} {
		if status, body := s.ask("GET", "runs/"+altered+"/export?format="+format, nil); status != want || !strings.Contains(string(body), "the store's columns differ from the record: path") {
			t.Errorf("an export of an altered run as %s: %d %.2000s", format, status, body)
		}
	}
	const invented = "r-00000000000000000000000000"
	body := `{"v":1,"run":"` + invented + `","seq":2,"time":"2026-01-01T00:00:00Z","observer":"host","kind":"finding","finding":{"rule":"x","detail":"invented"}}`
	d.sqlite("INSERT INTO records (run, seq, time, kind, step, observer, proc, body, salt, path, host, hash, secret, rule, leaf) SELECT '" + invented +
		"', seq, time, 'finding', step, 'host', proc, CAST('" + body + "' AS BLOB), salt, path, host, hash, secret, 'x', leaf FROM records WHERE run = '" + altered + "' AND seq = 2")
	d.sqlite("INSERT INTO runs (run, project, start, first_time, end, status, result, exit_code, tier, mode, template, events, findings, gaps, lost, last_seq, tenant, host) SELECT '" + invented +
		"', project, start, first_time, end, status, result, exit_code, tier, mode, template, events, findings, gaps, lost, last_seq, tenant, host FROM runs WHERE run = '" + altered + "'")
	if all := states("findings"); all[invented] != store.Unsigned {
		t.Errorf("a finding is invented: %v", all)
	}
	var logs map[string]store.State
	eventually(t, "in the store: the access log", func() bool {
		logs = states("access")
		return len(logs) == 1
	})
	for log, state := range logs {
		if state != store.Holds {
			t.Errorf("nothing is altered: %v", logs)
		}
		d.sqlite("UPDATE records SET body = replace(body, 'auditor', 'nobody!') WHERE run = '" + log + "'")
		if all := states("access"); all[log] != store.Fails {
			t.Errorf("an access is altered: %v", all)
		}
	}
}
