package judge_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/replay/judge"
	"github.com/custody-project/custody/replay/report"
	"github.com/custody-project/custody/replay/report/issue"
	"github.com/custody-project/custody/store"
)

// TestJudge verifies a run in each form in which it can be named, as it is and changed.
func TestJudge(t *testing.T) {
	ctx, home, dir := t.Context(), t.TempDir(), t.TempDir()
	id := sampleruns.Record(t, home, sampleruns.Large(20))
	h, err := host.Open(home)
	must(t, err)
	st, err := h.Reader(ctx)
	must(t, err)
	defer st.Close()
	run, err := st.Run(ctx, "", id)
	must(t, err)
	keys, err := h.Fleet().Known()
	must(t, err)
	trust := proof.Trust{Keys: keys}

	var bundle bytes.Buffer
	must(t, h.Proofs().Bundle(ctx, &bundle, "", id, host.BundleOptions{}))
	one, err := h.Proofs().OfRecord(ctx, "", id, 2)
	must(t, err)
	record, err := one.Encode()
	must(t, err)
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, data, 0o600))
		return path
	}
	issuer := issue.Issuer{Host: h, Source: st}
	r, err := issuer.Build(ctx, report.Input{Framework: "soc2", Runs: issuer.Verify(ctx, []store.Run{run})})
	must(t, err)
	must(t, issuer.WriteDir(ctx, filepath.Join(dir, "report"), r))

	changed := bytes.Replace(bundle.Bytes(), []byte(`"seq":2,`), []byte(`"seq":3,`), 1)
	for name, c := range map[string]struct {
		j      judge.Judgement
		of     judge.Kind
		holds  bool
		barred bool
		text   string // in the document
	}{
		"run":               {judge.Run(ctx, h, st, run, trust), judge.OfRun, true, false, "every record holds"},
		"bundle":            {judge.File(ctx, file("bundle", bundle.Bytes()), trust), judge.OfBundle, true, false, "every record holds"},
		"changed bundle":    {judge.File(ctx, file("changed", changed), trust), judge.OfBundle, false, false, ""},
		"no bundle":         {judge.File(ctx, file("none", []byte("x")), trust), judge.OfBundle, false, false, ""},
		"empty file":        {judge.File(ctx, file("empty", nil), trust), judge.OfBundle, false, false, ""},
		"no file":           {judge.File(ctx, filepath.Join(dir, "nothing"), trust), "", false, true, "nothing"},
		"record":            {judge.File(ctx, file("record", record), trust), judge.OfRecord, true, false, "this record holds"},
		"no proof":          {judge.File(ctx, file("object", []byte("{}")), trust), judge.OfRecord, false, false, ""},
		"report":            {judge.Directory(ctx, filepath.Join(dir, "report"), trust), judge.OfReport, true, false, "the report is the host's"},
		"no report":         {judge.Directory(ctx, dir, trust), judge.OfReport, false, true, "no report that was signed"},
		"run without trust": {judge.Run(ctx, h, st, run, proof.Trust{}), judge.OfRun, false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.j.Of != c.of || (c.j.Err == nil) != c.holds || c.j.Barred != c.barred {
				t.Fatalf("of %q, barred %v: %v", c.j.Of, c.j.Barred, c.j.Err)
			}
			exit := judge.Verified
			if !c.holds {
				exit = judge.DoesNotVerify
			}
			line, err := json.Marshal(c.j.Document("x", exit, "do this", time.Now()))
			must(t, err)
			var d judge.Document
			must(t, json.Unmarshal(line, &d))
			state := map[bool]string{true: "holds", false: "fails"}[c.holds]
			if d.V != 1 || d.Target != "x" || d.Of != c.of || d.Exit != exit || d.State != state || d.Hint != "do this" || !strings.Contains(d.Text, c.text) {
				t.Errorf("the document is %s", line)
			}
			if c.holds && c.of != judge.OfReport && d.Run != id || c.holds && c.of == judge.OfReport && (len(d.Runs) != 1 || d.Runs[0].Run != id) {
				t.Errorf("it is about another run: %s", line)
			}
			if (d.Record != nil) != (c.of == judge.OfRecord && c.holds) || d.Record != nil && d.Record.Seq != 2 {
				t.Errorf("the record is %+v", d.Record)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
