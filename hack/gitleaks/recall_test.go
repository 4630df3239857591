package gitleaks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/redact/pattern"
	_ "github.com/zricethezav/gitleaks/v8/cmd/generate/config/rules" // has the examples; imported so that go.mod has its dependencies
	"github.com/zricethezav/gitleaks/v8/detect"
)

const module = "github.com/zricethezav/gitleaks/v8"

type example struct {
	Rule, Path, Text string
	Positive         bool
}

// examples builds gitleaks' rule generator from a copy of its source, with the check of
// a rule against its examples replaced by package capture, and runs it. Parts of the
// examples are random and differ from call to call.
func examples(t *testing.T) []example {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	original := strings.TrimSpace(command(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", module))
	command(t, ".", "cp", "-r", "--no-preserve=mode", original, source)
	command(t, ".", "cp", "capture/validate.go", filepath.Join(source, "cmd/generate/config/utils"))

	mod := filepath.Join(dir, "go.mod")
	command(t, ".", "cp", "go.mod", "go.sum", dir)
	command(t, ".", "go", "mod", "edit", "-replace", module+"="+source, mod)
	generator, list := filepath.Join(dir, "generate"), filepath.Join(dir, "examples.json")
	command(t, ".", "go", "build", "-modfile", mod, "-o", generator, module+"/cmd/generate/config")
	t.Setenv("GITLEAKS_EXAMPLES", list)
	command(t, filepath.Join(source, "cmd/generate/config"), generator, filepath.Join(dir, "gitleaks.toml"))
	return read(t, list)
}

func command(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, problems.String())
	}
	return string(out)
}

func read(t *testing.T, path string) (list []example) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e example
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if err := lines.Err(); err != nil || len(list) < 1000 {
		t.Fatalf("%d examples, %v", len(list), err)
	}
	return list
}

// pathOnly is the rule that matches only paths, which a stream does not have.
const pathOnly = "pkcs12-file"

// score counts the detected positives of one rule.
type score struct{ positives, theirs, ours, same int }

func TestRecall(t *testing.T) {
	ours, theirs := pair(t)
	scores := map[string]*score{}
	negatives, alarms := 0, 0
	for _, e := range examples(t) {
		if e.Rule == pathOnly {
			continue
		}
		found := theirs.Detect(detect.Fragment{Raw: e.Text, FilePath: e.Path})
		hits := ours.Find(nil, []byte(e.Text))
		if !e.Positive {
			negatives++
			if len(hits) > 0 && len(found) == 0 {
				alarms++
				t.Logf("%s: not a secret to gitleaks: %q: %v", e.Rule, e.Text, hits)
			}
			continue
		}
		s := scores[e.Rule]
		if s == nil {
			s = &score{}
			scores[e.Rule] = s
		}
		s.positives++
		if len(found) == 0 {
			continue
		}
		s.theirs++
		missed := ""
		for _, f := range found {
			if !covered(e.Text, f.Secret, hits) {
				missed = f.RuleID + " " + f.Secret
			}
		}
		if missed != "" {
			t.Errorf("%s: gitleaks finds %q in %q, ours %v", e.Rule, missed, e.Text, hits)
			continue
		}
		s.ours++
		if slices.ContainsFunc(hits, func(h redact.Hit) bool { return h.Rule == e.Rule }) {
			s.same++
		}
	}
	report(t, scores)
	t.Logf("negatives: %d, of them taken for secrets by ours alone: %d", negatives, alarms)
}

// covered reports whether the hits cover an occurrence of secret in text.
func covered(text, secret string, hits []redact.Hit) bool {
	mark := []byte(text)
	for _, h := range hits {
		for i := h.Start; i < h.End; i++ {
			mark[i] = 0
		}
	}
	for at := 0; ; at++ {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			return false
		}
		at += i
		if len(bytes.Trim(mark[at:at+len(secret)], "\x00")) == 0 {
			return true
		}
	}
}

func report(t *testing.T, scores map[string]*score) {
	var sum score
	var ids []string
	for id := range scores {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	t.Logf("%-45s %9s %9s %9s %9s", "rule", "positives", "gitleaks", "ours", "same rule")
	for _, id := range ids {
		s := scores[id]
		t.Logf("%-45s %9d %9d %9d %9d", id, s.positives, s.theirs, s.ours, s.same)
		sum = score{sum.positives + s.positives, sum.theirs + s.theirs, sum.ours + s.ours, sum.same + s.same}
	}
	t.Logf("%-45s %9d %9d %9d %9d", fmt.Sprintf("all %d rules", len(ids)), sum.positives, sum.theirs, sum.ours, sum.same)
}

func pair(t testing.TB) (*pattern.Rules, *detect.Detector) {
	t.Helper()
	ours, err := pattern.New()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := detect.NewDetectorDefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}
