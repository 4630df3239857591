package cef

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

// parsed is a line as parsed by a strict reader of the specification.
type parsed struct {
	header []string // version to severity
	keys   []string
	values map[string]string
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// parse parses one line. It refuses whatever the specification does not allow.
func parse(line string) (parsed, error) {
	p := parsed{values: map[string]string{}}
	if strings.ContainsFunc(line, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029
	}) || !utf8.ValidString(line) {
		return p, fmt.Errorf("a control character, or no UTF-8")
	}
	rest, ok := strings.CutPrefix(line, "CEF:")
	if !ok {
		return p, fmt.Errorf("no CEF")
	}
	for len(p.header) < 7 {
		field, after, err := upTo(rest, '|', `|\`)
		if err != nil {
			return p, err
		}
		p.header, rest = append(p.header, field), after
	}
	return p, p.extension(rest)
}

// upTo reads to the first end that is not escaped, and removes the escapes. It accepts only
// allowed escapes.
func upTo(s string, end byte, may string) (field, after string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == end:
			return b.String(), s[i+1:], nil
		case s[i] == '\\':
			if i++; i == len(s) || strings.IndexByte(may, s[i]) < 0 {
				return "", "", fmt.Errorf("a wrong escape in %.60q", s)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", fmt.Errorf("no %q in %.60q", end, s)
}

// extension parses key=value pairs: an equals sign that is not escaped ends a key, which begins
// after the last space before it.
func (p *parsed) extension(s string) error {
	var ends []int
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '=':
			ends = append(ends, i)
		}
	}
	for n, eq := range ends {
		start := strings.LastIndexByte(s[:eq], ' ') + 1
		until := len(s)
		if n+1 < len(ends) {
			until = strings.LastIndexByte(s[:ends[n+1]], ' ')
		}
		key := s[start:eq]
		if until <= eq || !keyName.MatchString(key) || n == 0 && start != 0 {
			return fmt.Errorf("no key and value at %.60q", s[start:])
		}
		if _, twice := p.values[key]; twice {
			return fmt.Errorf("%s stands there twice", key)
		}
		value, err := unescape(s[eq+1 : until])
		if err != nil {
			return err
		}
		p.keys = append(p.keys, key)
		p.values[key] = value
	}
	return nil
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", fmt.Errorf("an escape of nothing in %.60q", s)
		}
		c, ok := map[byte]byte{'\\': '\\', '=': '=', 'n': '\n', 'r': '\r'}[s[i]]
		if !ok {
			return "", fmt.Errorf(`\%c is no escape in %.60q`, s[i], s)
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// render is the slow formatter of what was parsed.
func (p parsed) render() string {
	var b strings.Builder
	b.WriteString("CEF:")
	head := strings.NewReplacer(`\`, `\\`, `|`, `\|`)
	for _, f := range p.header {
		b.WriteString(head.Replace(f) + "|")
	}
	value := strings.NewReplacer(`\`, `\\`, `=`, `\=`, "\n", `\n`, "\r", `\r`)
	for i, k := range p.keys {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(k + "=" + value.Replace(p.values[k]))
	}
	return b.String()
}

// shown returns the escaped form of a text, by a slow implementation, in a value without a length limit.
func shown(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n' || r == '\r':
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r >= 0x80 && r <= 0x9f || r == 0x2028 || r == 0x2029:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func write(t testing.TB, e export.Event) string {
	t.Helper()
	b, err := New().Append(nil, e)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// check compares a line with the specification, and its parse with the line.
func check(t testing.TB, line string) parsed {
	t.Helper()
	p, err := parse(line)
	if err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	if again := p.render(); again != line {
		t.Fatalf("read and written again\n%q became\n%q", line, again)
	}
	if p.header[0] != "0" || len(p.header[6]) == 0 {
		t.Fatalf("header %q", p.header)
	}
	for k := range p.values {
		if base, ok := strings.CutSuffix(k, "Label"); ok && p.values[base] == "" {
			t.Errorf("%s has no value: %q", k, line)
		}
		if custom.MatchString(k) && p.values[k+"Label"] == "" {
			t.Errorf("%s has no label: %q", k, line)
		}
	}
	return p
}

var custom = regexp.MustCompile(`^(cs|cn|c6a)[0-9]$`)

// dictionary has the keys of CEF's extension dictionary that are used.
var dictionary = strings.Fields(`rt externalId cat outcome deviceExternalId dvchost act reason msg app proto
	src dst spt dpt dhost in out cnt deviceDirection destinationTranslatedAddress destinationTranslatedPort
	fname filePath oldFilePath fsize fileHash fileId sproc dproc spid dpid suid duid suser spriv request requestMethod
	cs1 cs1Label cs2 cs2Label cs3 cs3Label cs4 cs4Label cs5 cs5Label cs6 cs6Label
	cn1 cn1Label cn2 cn2Label cn3 cn3Label c6a2 c6a2Label c6a3 c6a3Label`)

// Every kind, operation and state is a line with keys of the dictionary, and keys that begin with custody.
func TestKeys(t *testing.T) {
	used := map[string]bool{}
	for _, s := range append(sample.All(), sample.Marked()...) {
		p := check(t, write(t, s.Event))
		for _, k := range p.keys {
			used[k] = true
			if !slices.Contains(dictionary, k) && !strings.HasPrefix(k, "custody") {
				t.Errorf("%s: %s is no key of CEF", s.Name, k)
			}
		}
		if p.values["externalId"] != s.ID() || p.values["rt"] != fmt.Sprint(s.Time.UnixMilli()) {
			t.Errorf("%s: %v", s.Name, p.values)
		}
	}
	for _, k := range dictionary {
		if !used[k] {
			t.Errorf("no sample has %s", k)
		}
	}
}

// Every value of every field of every kind is in the line.
func TestNothingIsDropped(t *testing.T) {
	for _, fit := range []bool{true, false} {
		for kind, e := range sample.Full(fit) {
			text := write(t, e.Event)
			check(t, text)
			for _, l := range e.Leaves {
				if !slices.ContainsFunc(l.Forms, func(s string) bool { return strings.Contains(text, s) }) {
					t.Errorf("%s: %s, %v, is nowhere in %s", kind, l.Field, l.Forms, text)
				}
			}
		}
	}
}

func TestLine(t *testing.T) {
	const want = `CEF:0|Custody|Custody|1.0.0|exec|Process started|2|rt=1795215439722 externalId=r-01m7xjv1a823je79x1yt6ytbn4:13 cat=exec outcome=success ` +
		`deviceExternalId=host-1+0a1b2c3d dvchost=vm-host-1 cs2Label=run cs2=r-01m7xjv1a823je79x1yt6ytbn4 cs3Label=step cs3=agent ` +
		`cs4Label=observer cs4=guest cs5Label=tenant cs5=acme custodySeq=13 custodyTime=2026-11-20T22:57:19.722398033Z ` +
		`custodyGuestTime=2026-11-20T22:57:07.625850987Z custodyGuestOffsetNs=39734027 custodyProject=shop custodyTier=qemu-tcg ` +
		`dproc=/tmp/\\xff\nk\\xfe dpid=118 duid=0 spid=115 cs6Label=commandLine cs6='x\\x00y' 'a\nCEF:0|b\\u2028c\\x1b[2J' '\\x80\\x81\\x82' '` + "\u202e" + `\=|\\' ` +
		`custodyProc=11ccec29abfb7c42af3a96b08bb3f1ba custodyCwd=/tmp`
	if got := write(t, sample.Named("exec/bytes")); got != want {
		t.Errorf("\n%s\n%s", got, want)
	}
}

// Values are cut to the lengths of the dictionary, and the cuts are listed.
func TestBounds(t *testing.T) {
	e := sample.Named("exec/plain")
	x := *e.Record.Exec
	x.Argv = slices.Repeat([]audit.Text{"it's ü"}, 100_000)
	x.Exe = audit.Text(strings.Repeat("ü", 5000))
	x.Cwd = audit.Text(strings.Repeat("\xff", 100_000))
	e.Record.Exec = &x
	text := write(t, e)
	p := check(t, text)
	if n := len(p.values["cs6"]); n > 4000+2 || n < 3900 {
		t.Errorf("cs6 has %d bytes", n)
	}
	if n := len(p.values["dproc"]); n != 1022 {
		t.Errorf("dproc has %d bytes", n)
	}
	if !strings.Contains(p.values["custodyTruncated"], "dproc:10000") || !strings.Contains(p.values["custodyTruncated"], "cs6:") {
		t.Errorf("cut: %s", p.values["custodyTruncated"])
	}
	if len(text) > 5*maxLine {
		t.Errorf("%d bytes", len(text))
	}
}

func FuzzValue(f *testing.F) {
	for _, s := range []string{"", "a b", " a= b=c ", `\`, `\=`, "|", "a|", "\n\r\x00\t", "\xff", "\u2028", "x=\nCEF:0|", "ü\xc3", `\n`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 255 {
			return
		}
		l := line{left: maxLine}
		l.header("-", s, "name|"+s, severity(export.Info))
		l.str("msg", s)
		l.words("cs1", []audit.Text{"a", audit.Text(s), "'"})
		l.int("rt", 1)
		p, err := parse(string(l.finish()))
		if err != nil {
			t.Fatal(err)
		}
		oneLine := strings.NewReplacer("\n", `\x0a`, "\r", `\x0d`)
		if p.header[4] != oneLine.Replace(shown(s)) || p.values["msg"] != shown(s) || p.values["rt"] != "1" {
			t.Errorf("%q became %q", s, p)
		}
		if words := p.values["cs1"]; !strings.HasPrefix(words, "a ") || !strings.HasSuffix(words, ` ''\'''`) {
			t.Errorf("%q", words)
		}
	})
}

// FuzzAppend: every record that decodes is one line that a strict reader parses.
func FuzzAppend(f *testing.F) {
	for _, s := range sample.All() {
		f.Add([]byte(s.Body), []byte(s.Name))
	}
	f.Fuzz(func(t *testing.T, body, other []byte) {
		e := export.Event{Body: body, Tenant: string(other), Host: string(other)}
		if json.Unmarshal(body, &e.Record) != nil {
			return
		}
		e.Exec = &audit.Exec{Proc: "p", Parent: "pp", Exe: audit.Text(other), Argv: []audit.Text{audit.Text(other)}}
		e.Parent = e.Exec
		e.Start = &audit.Lifecycle{Host: string(other), Version: string(other), Tier: string(other)}
		p := check(t, write(t, e))
		if len(other) > 0 && len(other) < 100 && p.values["cs5"] != shown(string(other)) {
			t.Errorf("tenant %q became %q", other, p.values["cs5"])
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f := New()
	all := sample.All()
	var buf []byte
	i, n := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = f.Append(buf[:0], all[i%len(all)].Event)
		i, n = i+1, n+len(buf)
	}
	b.SetBytes(int64(n / i))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
