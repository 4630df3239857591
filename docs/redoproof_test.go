package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// selected returns the files of a bundle with only the records from first to last, and a report.
func (s *scene) selected(t *testing.T, dir string, first, last uint64) map[string][]byte {
	t.Helper()
	var b bytes.Buffer
	o := proof.BundleOptions{
		HostKey: s.key.Public, Log: s.log, Since: s.before, Rotations: [][]byte{s.rotation}, Signer: s.key, By: "ann", Time: time.Now(),
		Select:      &proof.Selection{Shows: func(seq uint64) bool { return first <= seq && seq <= last }, What: "a <part>"},
		Attachments: []statement.Attachment{{Name: "report/soc2.html", Data: []byte("<p>")}, {Name: "report/soc2.json", Data: []byte("{}")}},
	}
	if err := proof.WriteBundle(t.Context(), &b, dir, o); err != nil {
		t.Fatal(err)
	}
	return prooftest.Unpack(t, b.Bytes())
}

// TestRedoSelection: the script, the page and verify agree on bundles that withhold records and have attachments.
func TestRedoSelection(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	truth, other, second := s.selected(t, s.one, 3, 9), s.selected(t, s.one, 3, 8), s.selected(t, s.two, 3, 9)
	code, out := theirs(t, write(t, truth), s.arguments...)
	if code != 0 || !strings.Contains(out, "6 of 12 records shown, the others withheld") {
		t.Errorf("%d: %s", code, out)
	}
	n := func(first int, suffix string) string { return fmt.Sprintf("%020d%s", first, suffix) }
	spans := func(data []byte) (all []int) {
		for i := 0; i < len(data); i += 29 + int(data[i+4]) + int(data[i+5])<<8 {
			all = append(all, i)
		}
		return append(all, len(data))
	}
	frame := func(f map[string][]byte, first, i int, with []byte) {
		at := spans(f[n(first, ".seg")])
		f[n(first, ".seg")] = slices.Concat(f[n(first, ".seg")][:at[i]], with, f[n(first, ".seg")][at[i+1]:])
	}
	of := func(f map[string][]byte, first, i int) []byte {
		at := spans(f[n(first, ".seg")])
		return bytes.Clone(f[n(first, ".seg")][at[i]:at[i+1]])
	}
	cases := map[string]func(map[string][]byte){
		"selection of another":     func(f map[string][]byte) { f["selection"] = other["selection"] },
		"selection of another run": func(f map[string][]byte) { f["selection"] = second["selection"] },
		"attached to another run":  func(f map[string][]byte) { f["attachments"] = second["attachments"] },
		"record put back":          func(f map[string][]byte) { frame(f, 8, 2, of(s.truth, 8, 2)) },
		"record taken away":        func(f map[string][]byte) { frame(f, 8, 1, of(other, 8, 1)) },
		"all put back": func(f map[string][]byte) {
			for name, b := range s.truth {
				f[name] = b
			}
		},
		"withheld swapped":    func(f map[string][]byte) { a, b := of(f, 8, 3), of(f, 8, 4); frame(f, 8, 3, b); frame(f, 8, 4, a) },
		"withheld dropped":    func(f map[string][]byte) { frame(f, 8, 3, nil) },
		"withheld as erased":  func(f map[string][]byte) { frame(f, 8, 3, append([]byte("CWE1"), of(f, 8, 3)[4:]...)) },
		"erased as withheld":  func(f map[string][]byte) { frame(f, 2, 3, append([]byte("CWH1"), of(f, 2, 3)[4:]...)) },
		"a file that is more": func(f map[string][]byte) { f["report/x"] = []byte("x") },
		"files swapped": func(f map[string][]byte) {
			f["report/soc2.html"], f["report/soc2.json"] = f["report/soc2.json"], f["report/soc2.html"]
		},
	}
	for _, name := range []string{"selection", "attachments", "report/soc2.html", n(8, ".seg"), n(2, ".seg"), n(1, ".seg")} {
		cases["drop "+name] = func(f map[string][]byte) { delete(f, name) }
		for _, part := range []int{2, 3, 4, 5, 7} {
			cases[fmt.Sprint("flip ", name, part)] = func(f map[string][]byte) {
				b := bytes.Clone(f[name])
				b[len(b)*part/8] ^= 0x11
				f[name] = b
			}
		}
	}
	for i, at := range []int{12, 44, 54, 80} {
		cases[fmt.Sprint("of a withheld record ", i)] = func(f map[string][]byte) {
			b := of(f, 8, 3)
			b[at] ^= 0x11
			frame(f, 8, 3, b)
		}
	}
	for _, title := range slices.Sorted(maps.Keys(cases)) {
		f := maps.Clone(truth)
		cases[title](f)
		bundle := write(t, f)
		want, err := ours(t, bundle, s.trust)
		if want == 0 {
			t.Errorf("%s: verify holds", title)
		}
		others.agree(title, want, err, append([]string{bundle}, s.arguments...)...)
	}
}

// oursRecord returns verify's exit status for the proof of one record.
func oursRecord(data []byte, trust proof.Trust) (int, error) {
	p, err := proof.ParseRecordProof(data)
	if err == nil {
		_, err = p.Verify(trust)
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, verdict.ErrCannotBeJudged):
		return 2, err
	}
	return 1, err
}

// TestRedoRecord: the script, the page and Verify agree on proofs of single records.
func TestRedoRecord(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	e := must(proof.OpenDir(s.one))
	defer e.Close()
	e.Log, e.HostKey, e.Rotations = s.log, s.key.Public, [][]byte{s.rotation}
	trust, arguments := s.trust, s.arguments[:6]
	trust.Since = nil
	path := filepath.Join(t.TempDir(), "proof.json")
	judge := func(title string, p any, change bool) {
		t.Helper()
		data := must(json.Marshal(p)) // its members in another order, for the most part
		ask := func(title string, data []byte) int {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			want, err := oursRecord(data, trust)
			others.agree(title, want, err, append([]string{path}, arguments...)...)
			return want
		}
		if ask(title+" in another form", data) == 0 {
			t.Errorf("%s: it holds in another form", title)
		}
		var again proof.RecordProof
		if json.Unmarshal(data, &again) == nil {
			if want := ask(title, must(again.Encode())); change == (want == 0) {
				t.Errorf("%s: %d", title, want)
			}
		}
	}
	for _, seq := range []uint64{1, 2, 5, 12} { // 5 is erased
		p := must(proof.ProofOf(t.Context(), e, seq))
		judge(fmt.Sprint("seq ", seq), p, false)
		for at, values := 0, leavesOf(plain(p)); at < values; at++ {
			changed := plain(p)
			left := at
			name := alter(changed, &left)
			judge(fmt.Sprintf("seq %d, %s", seq, name), changed, true)
		}
		for key := range plain(p) {
			changed := plain(p)
			delete(changed, key)
			judge(fmt.Sprintf("seq %d without %s", seq, key), changed, key != "host_key")
		}
		changed := plain(p)
		if twice, ok := changed["rotations"].([]any); ok {
			changed["rotations"] = append(twice, twice...)
			judge(fmt.Sprintf("seq %d, rotations twice", seq), changed, true)
		}
	}
}

// plain decodes a document into maps and slices.
func plain(p proof.RecordProof) map[string]any {
	dec := json.NewDecoder(bytes.NewReader(must(json.Marshal(p))))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		panic(err)
	}
	return m
}

// leavesOf counts the texts and numbers of a value.
func leavesOf(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += leavesOf(e)
		}
	case []any:
		for _, e := range v {
			n += leavesOf(e)
		}
	default:
		return 1
	}
	return n
}

// alter changes the text or number with the index *at, and returns its path.
func alter(v any, at *int) string {
	change := func(e any) (any, string) {
		switch e := e.(type) {
		case map[string]any, []any:
			return e, alter(e, at)
		case json.Number:
			if *at--; *at == -1 {
				n := must(e.Int64())
				return n + 1, "+1"
			}
			return e, ""
		case string:
			if *at--; *at == -1 {
				b := []byte(e)
				i := len(b) / 2
				b[i] = map[bool]byte{true: 'a', false: 'b'}[b[i] != 'a']
				return string(b), "changed"
			}
		}
		return e, ""
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			e, name := change(v[k])
			if v[k] = e; name != "" {
				return k + "." + name
			}
		}
	case []any:
		for i := range v {
			e, name := change(v[i])
			if v[i] = e; name != "" {
				return fmt.Sprint(i, ".", name)
			}
		}
	}
	return ""
}
