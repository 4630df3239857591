package redact

import (
	"bytes"
	"flag"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	valuesFlag = flag.Int("values", 4, "how many values of each class the tools write")
	seedFlag   = flag.Uint64("seed", 2, "makes the second half of the tools' values")
)

// TestTools lets common programs write values of every class, and compares their output:
//
//	value a --tool--> text --redact(a)--> masked a \
//	                                                equal except for the tags
//	value b --tool--> text --redact(b)--> masked b /
//
// b has a's length and kinds of characters, but different ones wherever possible, and the same surroundings. A symbol
// that depends on the value and was not masked makes the two differ. So does a symbol that is masked in only one of
// them. Text without the value must not change: a redactor with only a must not change the tool's output for b.
//
// Half of the values are the same in every run, half depend on -seed, which make fuzz chooses.
func TestTools(t *testing.T) {
	m := newMatrix(t, *seedFlag)
	for _, tool := range tools() {
		t.Run(tool.name, func(t *testing.T) {
			out := m.run(t, tool)
			for p, program := range tool.programs {
				m.judge(t, tool, program, out[p])
			}
		})
	}
	if t.Failed() {
		t.Logf("to repeat with the same values: go test ./redact -run TestTools -values %d -seed %d", *valuesFlag, *seedFlag)
	}
}

// echo is a web server.
func echo(t *testing.T) string {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	return s.URL
}

// tool runs programs on files: for each file that its standard input names and for each program, it prints a line with
// MARK and the two numbers, and then the program's output for the file. The script has that word at the position of the
// mark.
type tool struct {
	name     string
	argv     []string
	env      string
	script   func(programs []program) string // its result is appended to argv
	programs []program
	inGo     bool // programs are functions
	filter   bool // reads a text with all values of a class; otherwise each value alone
	sole     bool // runs only on values that are alone
	few      bool // and only on one of each class, because it is slow
}

// takes reports whether the tool runs on an item.
func (t tool) takes(it item) bool {
	return it.filter == t.filter && (it.sole || !t.sole) && (it.last || !t.few)
}

type program struct {
	name string // for reports
	code string // the code in the tool's script; the name if empty
	do   func(s string) string

	text  bool   // of characters: for values in UTF-8
	word  bool   // for values without a zero byte
	file  bool   // for values that can be file names
	line  bool   // not for values with line breaks, except keys
	sole  bool   // only if the value is alone
	short int    // for values of at most that many bytes, unless 0
	wraps string // the program's line breaks, if their positions depend on its output
	not   string // classes that it does not support
}

func (p program) source() string {
	if p.code == "" {
		return p.name
	}
	return p.code
}

// fits reports whether p supports a text with the values of a class.
func (p program) fits(c valueClass, text string, values []string) bool {
	switch {
	case p.text && !utf8.ValidString(text), p.word && strings.Contains(text, "\x00"):
		return false
	case slices.Contains(strings.Fields(p.not), c.name):
		return false
	case p.file && (strings.ContainsAny(text, "/\x00") || len(text) > 200):
		return false
	case p.line && !slices.Contains([]string{"pem", "lines", "json"}, c.name) && slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\n\r\v\f") }):
		return false
	}
	return p.short == 0 || len(text) <= p.short
}

// item is a text with values, in a file for a tool.
type item struct {
	class  valueClass
	filter bool
	sole   bool
	last   bool // of its class
	twin   [2]side
}

// side is an item with the values a, or b.
type side struct {
	text     string
	values   []string
	redactor *Redactor
}

type matrix struct {
	dir   string
	url   string // of a web server
	items []item
}

func newMatrix(t *testing.T, seed uint64) *matrix {
	m := &matrix{dir: t.TempDir(), url: echo(t)}
	for _, c := range valueClasses() {
		name := crc64.Checksum([]byte(c.name), crc64.MakeTable(crc64.ECMA))
		old, fresh := rand.New(rand.NewPCG(1, name)), rand.New(rand.NewPCG(seed, name))
		half := *valuesFlag / 2
		m.add(t, c, append(c.values(old, 0, half), c.values(fresh, 3*fresh.IntN(24), *valuesFlag-half)...))
	}
	for i, it := range m.items {
		for n, s := range it.twin {
			if err := os.WriteFile(m.file(i, n), []byte(s.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return m
}

func (m *matrix) file(item, n int) string {
	return filepath.Join(m.dir, fmt.Sprintf("%d%c", item, 'a'+n))
}

// add makes the items of a class: each value alone, each between surroundings, and a text with all.
func (m *matrix) add(t *testing.T, c valueClass, pairs [][2]string) {
	var known [2]*Redactor
	for n := range known {
		known[n] = New(testKey)
		for _, p := range pairs {
			if err := known[n].Add("v", []byte(p[n])); err != nil {
				t.Fatal(err)
			}
		}
	}
	item := func(text func(values []string) string, pairs ...[2]string) item {
		it := item{class: c}
		for n := range it.twin {
			var list []string
			for _, p := range pairs {
				list = append(list, p[n])
			}
			it.twin[n] = side{text(list), list, known[n]}
		}
		return it
	}
	for i, p := range pairs {
		alone := item(func(v []string) string { return v[0] }, p)
		alone.sole, alone.last = true, i == len(pairs)-1
		m.items = append(m.items, alone, item(func(v []string) string { return surroundings[i%len(surroundings)].around(v[0]) }, p))
	}
	together := lettered(pairs)
	if c.name == "json" { // if all begin alike, the text between two may be masked
		together = together[len(together)-1:]
	}
	all := item(whole, together...)
	all.filter = true
	m.items = append(m.items, all)
}

// run returns the output of each program of a tool for each item's two sides.
func (m *matrix) run(t *testing.T, tool tool) (out []map[int][2]string) {
	out = make([]map[int][2]string, len(tool.programs))
	for p := range out {
		out[p] = map[int][2]string{}
	}
	var items []int
	for i, it := range m.items {
		if tool.takes(it) {
			items = append(items, i)
		}
	}
	if tool.inGo {
		for p, program := range tool.programs {
			for _, i := range items {
				out[p][i] = [2]string{program.do(m.items[i].twin[0].text), program.do(m.items[i].twin[1].text)}
			}
		}
		return out
	}
	if _, err := exec.LookPath(tool.argv[0]); err != nil {
		t.Fatalf("%v: ./hack/deps --test installs what the tests need", err)
	}
	mark := fmt.Sprintf("==%016x%016x ", rand.Uint64(), rand.Uint64())
	var stdin, stderr bytes.Buffer
	for _, i := range items {
		fmt.Fprintln(&stdin, m.file(i, 0))
		fmt.Fprintln(&stdin, m.file(i, 1))
	}
	cmd := exec.Command(tool.argv[0], append(tool.argv[1:], strings.ReplaceAll(tool.script(tool.programs), "MARK", mark))...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "URL="+m.url, tool.env)
	cmd.Dir, cmd.Stdin, cmd.Stderr = t.TempDir(), &stdin, &stderr
	printed, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	for _, part := range strings.Split(string(printed), mark)[1:] {
		head, text, _ := strings.Cut(part, "\n")
		var n, p int
		if _, err := fmt.Sscan(head, &n, &p); err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		twin := out[p][items[n/2]]
		twin[n%2] = text
		out[p][items[n/2]] = twin
	}
	return out
}

// judge checks the output of a program, class by class.
func (m *matrix) judge(t *testing.T, tool tool, p program, out map[int][2]string) {
	seen, failed, why := map[string]bool{}, map[string]bool{}, map[string]string{}
	var order []string
	for i, it := range m.items {
		c := it.class.name
		text, known := it.twin[0].text, it.twin[0].values
		if !tool.takes(it) || p.sole && !it.sole || !p.fits(it.class, text, known) {
			continue
		}
		if !slices.Contains(order, c) {
			order = append(order, c)
		}
		if seen[c] = seen[c] || out[i][0] != out[i][1]; failed[c] {
			continue
		}
		why[c] = p.leak(it, out[i])
		failed[c] = why[c] != ""
	}
	for _, c := range order {
		listed := strings.Fields(knownLeaks[tool.name+": "+p.name])
		rare := slices.Contains(listed, c+"?")
		known := rare || slices.Contains(listed, c)
		switch {
		case !seen[c]:
			t.Errorf("%s: the values of class %s make no difference", p.name, c)
		case failed[c] && !known:
			t.Errorf("%s: class %s: %s", p.name, c, why[c])
		case !failed[c] && known && !rare && *valuesFlag >= 4:
			t.Errorf("%s: class %s is masked: delete it from knownLeaks", p.name, c)
		}
	}
}

var tags = regexp.MustCompile(`\[REDACTED:v:[0-9a-f]{8}\]`)

// leak returns the part of the values that is left in the output of p, or other text that was masked; "" if there is
// none.
func (p program) leak(it item, out [2]string) string {
	var masked [2]string
	for n, s := range it.twin {
		text := s.redactor.String(out[n])
		text = tags.ReplaceAllLiteralString(text, "[V]")
		if p.wraps != "" {
			text = strings.ReplaceAll(text, p.wraps, "")
		}
		masked[n] = text
	}
	if at := differ(masked[0], masked[1]); at >= 0 && !(len(it.twin[0].values) == 1 && p.beside(out, masked)) {
		return fmt.Sprintf("for %.300q\nmasked %q\ntwin   %q\nof     %q", it.twin[0].values, around(masked[0], at), around(masked[1], at), around(out[0], differ(out[0], out[1])))
	}
	if out[0] == out[1] {
		return ""
	}
	if text := it.twin[0].redactor.String(out[1]); text != out[1] {
		return fmt.Sprintf("%.300q masks something in the text with %.300q: %q", it.twin[0].values, it.twin[1].values, around(text, differ(text, out[1])))
	}
	return ""
}

// beside reports whether the masked texts differ only beside the value: in one of them one more adjacent symbol is
// masked.
func (p program) beside(out, masked [2]string) bool {
	before := max(0, differ(out[0], out[1]))
	after := 0
	for after < min(len(out[0]), len(out[1]))-before && out[0][len(out[0])-1-after] == out[1][len(out[1])-1-after] {
		after++
	}
	var middle [2]string
	for n, text := range masked {
		first, last := strings.Index(text, "[V]"), strings.LastIndex(text, "[V]")
		if first < 0 || first > before || len(text)-last-3 > after {
			return false
		}
		middle[n] = text[first:last]
	}
	return middle[0] == middle[1]
}

// differ returns the position at which a and b first differ, or -1.
func differ(a, b string) int {
	if a == b {
		return -1
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	return at
}

func around(s string, at int) string { return s[max(0, at-60):min(len(s), at+100)] }
