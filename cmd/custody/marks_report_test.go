package main

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/store"
)

// TestMarksReport alters the store of runs with and without a log here. A report leaves out
// what was altered, reports that, and counts nothing of the run as evidence.
func TestMarksReport(t *testing.T) {
	alterations := map[string]string{
		"a body":    `UPDATE records SET body = replace(body, '"seq":6', '"seq":6 ') WHERE seq = 6`,
		"a column":  `UPDATE records SET rule = 'y' WHERE seq = 6`,
		"a new row": strings.Replace(inventedLast, "%d", "400", 1),
	}
	for _, kind := range []string{"ended", "without a log here"} {
		t.Run(kind, func(t *testing.T) {
			r := newRecorded(t, "")
			id := r.run()
			if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
				t.Fatal(err)
			}
			if kind != "ended" {
				if err := os.RemoveAll(r.home.RunDir(id)); err != nil {
					t.Fatal(err)
				}
			}
			r.unaltered(id)
			kept := r.keepStore()
			for name, sql := range alterations {
				t.Run(name, func(t *testing.T) {
					r := &recorded{t, r.home}
					defer r.putBack(kept)
					(&door{T: t, home: r.home.Dir}).sqlite(sql)
					r.notEvidence(id)
				})
			}
		})
	}
}

func (r *recorded) unaltered(id string) {
	r.Helper()
	if got := r.reported(id); got.Sources[0].Unsigned != 0 || got.Sources[0].Verification.State == report.Fails {
		r.Fatalf("nothing is altered: %d unsigned, %+v", got.Sources[0].Unsigned, got.Sources[0].Verification)
	}
}

// notEvidence checks that a report does not count a run as evidence, and states why.
func (r *recorded) notEvidence(id string) {
	r.Helper()
	got := r.reported(id)
	if s := got.Sources[0]; s.Verification.State != report.Fails || s.Unsigned == 0 {
		r.Errorf("%d unsigned, verification %+v", s.Unsigned, s.Verification)
	}
	if got.Tally.Supports > 0 || len(got.Against) == 0 {
		r.Errorf("%+v, against %+v", got.Tally, got.Against)
	}
	if !strings.Contains(strings.Join(got.Limits, " "), "The store has records that no host signed") {
		r.Errorf("the limits do not say it: %q", got.Limits)
	}
}

// reported is the content of a report about a run.
func (r *recorded) reported(id string) (got report.Report) {
	r.Helper()
	if err := json.Unmarshal([]byte(r.says(reportCmd{Runs: []string{id}, Framework: "soc2", JSON: true})), &got); err != nil {
		r.Fatal(err)
	}
	return got
}

// TestMarksLearn: custody policy learn derives no rule from a record that no host signed.
func TestMarksLearn(t *testing.T) {
	r := newRecorded(t, "")
	id := writeRun(t, r.home, dnsEvent("genuine.example", ""), flowEvent("f1", "genuine.example", "198.18.1.0", 443, "tcp", ""))
	t.Chdir(t.TempDir())
	learn := func() (string, error) {
		var out strings.Builder
		err := policyLearnCmd{Name: id}.Run(newApp(t.Context(), nil, &out, &out))
		return out.String(), err
	}
	if text, err := learn(); err != nil || !strings.Contains(text, "+  - allow: genuine.example") {
		t.Fatalf("nothing is altered: %v %s", err, text)
	}
	(&door{T: t, home: r.home.Dir}).sqlite(`UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 'genuine.example', 'evil.example') AS BLOB)`)
	text, err := learn()
	var wrong *store.MarkError
	if !errors.As(err, &wrong) || strings.Contains(text, "evil.example") {
		t.Errorf("learns %v from an altered record: %s", err, text)
	}
}
