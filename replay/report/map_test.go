package report

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestMaps: each map loads, which checks ids, queries and limits; and describes what a map has to.
func TestMaps(t *testing.T) {
	controls, used := 0, map[string]bool{}
	for _, id := range frameworks {
		m, err := load(id)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if m.ID != id || !strings.HasPrefix(m.IDs, "^") || !strings.HasSuffix(m.IDs, "$") {
			t.Errorf("%s calls itself %s, and its ids %s", id, m.ID, m.IDs)
		}
		controls += len(m.Controls)
		for _, c := range m.Controls {
			for _, q := range c.Queries {
				name, _, _ := strings.Cut(q, " ")
				used[name] = true
			}
		}
	}
	if controls < 50 {
		t.Errorf("only %d controls", controls)
	}
	for _, q := range Queries() {
		if !used[q.Name] {
			t.Errorf("no map asks %s", q.Name)
		}
	}
}

// TestControls: the controls that the maps are to have, in their own numbering.
func TestControls(t *testing.T) {
	for id, want := range map[string]string{
		"soc2":      "CC4.1 CC6.1 CC6.6 CC6.8 CC7.1 CC7.2 CC7.3 CC7.4",
		"iso27001":  "A.8.15 A.8.16 A.8.17",
		"nist80053": "AU-2 AU-3 AU-4 AU-5 AU-6 AU-7 AU-8 AU-9(2) AU-9(3) AU-9(4) AU-10 AU-11 AU-12 AC-4 AC-6(9) SC-7(5) SI-4 SI-7",
		"pci":       "10.2.1 10.2.2 10.3.2 10.4.1 10.5.1 10.6.1 10.7.2",
		"gdpr":      "Art. 5(2)|Art. 17|Art. 25|Art. 30(1)|Art. 32(1)(b)|Art. 33(5)",
		"euaiact":   "Art. 12(1)|Art. 19(1)|Art. 26(6)",
	} {
		m, err := load(id)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, c := range m.Controls {
			have[c.ID] = true
		}
		sep := " "
		if strings.Contains(want, "|") {
			sep = "|"
		}
		for _, control := range strings.Split(want, sep) {
			if !have[control] {
				t.Errorf("%s has no %s", id, control)
			}
		}
	}
}

func TestUnknown(t *testing.T) {
	_, err := Build(t.Context(), Input{Framework: "soc3", Runs: []Run{{}}})
	var unknown *UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(unknown.Hint(), "soc2, iso27001, nist80053, pci, gdpr, euaiact") {
		t.Errorf("%v", err)
	}
	if len(Frameworks()) != len(frameworks) {
		t.Error("not all are listed")
	}
}

// TestBadMaps: a map that is not whole is refused, with a word that reports why.
func TestBadMaps(t *testing.T) {
	const good = "id: x\ntitle: X\nedition: e\nabout: a\nids: '^X[0-9]$'\nlimits: [l]\ncontrols:\n  - {id: X1, title: t, evidence: e, queries: [denied], limits: [l]}\n"
	if _, err := parseMap([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range [][3]string{
		{"ids: '^X[0-9]$'", "ids: '('", "ids"},
		{"id: X1", "id: Y1", "does not match"},
		{"queries: [denied]", "queries: []", "must not be empty"},
		{"queries: [denied]", "queries: [sql]", "vocabulary"},
		{"queries: [denied]", "queries: [denied 3]", "number"},
		{"queries: [denied]", "queries: [retained]", "number"},
		{"queries: [denied]", "queries: [retained -1]", "number"},
		{"queries: [denied]", "queries: [retained x]", "number"},
		{"limits: [l]}", "limits: []}", "must not be empty"},
		{"limits: [l]\n", "limits: []\n", "must not be empty"},
		{"title: X", "name: X", "name"},
	} {
		bad := strings.Replace(good, tc[0], tc[1], 1)
		if _, err := parseMap([]byte(bad)); err == nil || !strings.Contains(err.Error(), tc[2]) {
			t.Errorf("%s: %v", tc[1], err)
		}
	}
	twice := good + "  - {id: X1, title: t, evidence: e, queries: [denied], limits: [l]}\n"
	if _, err := parseMap([]byte(twice)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}

// TestNoPromise: no claim, title or limit reports that a requirement is met.
func TestNoPromise(t *testing.T) {
	promise := regexp.MustCompile(`(?i)complian|certif|guarant|conform|satisf|fulfil|\bmeets\b|\bproves that\b`)
	say := func(where, text string) {
		if m := promise.FindString(text); m != "" {
			t.Errorf("%s says %q: %s", where, m, text)
		}
	}
	runs := []Run{bundled(t, "agent", nil), bundled(t, "egress", nil), bundled(t, "secret", nil), bundled(t, "long", nil), bundled(t, "interrupted", nil)}
	for _, f := range Frameworks() {
		r := build(t, input(f.ID, runs...))
		say(f.ID, f.Title+f.About+r.Notice+r.Scope.Text+strings.Join(r.Limits, "\n"))
		for _, c := range r.Controls {
			say(c.ID, c.Title+"\n"+c.Evidence+"\n"+strings.Join(c.Limits, "\n"))
			for _, claim := range c.Claims {
				say(fmt.Sprint(c.ID, " ", claim.Query), claim.Text)
			}
		}
	}
	for _, q := range Queries() {
		say(q.Name, q.Asks)
	}
}
