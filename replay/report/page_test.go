package report

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/net/html"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// crc puts a frame's checksum right again; docs/verify.md has the format.
func crc(frame []byte) {
	n := binary.LittleEndian.Uint32(frame[4:])
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(frame[4:8], table), table, frame[12:12+1+16+n])
	binary.LittleEndian.PutUint32(frame[8:], sum)
}

// vet fails unless the page is one whole, needs nothing from elsewhere, runs nothing, and each
// link leads to a place in it.
func vet(t testing.TB, page string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(page))
	var open []string
	ids, links := map[string]bool{}, []string{}
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		tok := z.Token()
		switch kind {
		case html.StartTagToken:
			vetTag(t, tok, ids, &links)
			if !void[tok.Data] {
				open = append(open, tok.Data)
			}
		case html.EndTagToken:
			if len(open) == 0 || open[len(open)-1] != tok.Data {
				t.Fatalf("</%s> closes %v", tok.Data, open)
			}
			open = open[:len(open)-1]
		case html.TextToken:
			for _, r := range tok.Data {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Fatalf("a character %U is in the text %q", r, tok.Data)
				}
			}
		case html.CommentToken:
			t.Errorf("a comment: %s", tok.Data)
		}
	}
	if len(open) > 0 {
		t.Errorf("not closed: %v", open)
	}
	for _, link := range links {
		if !ids[link] {
			t.Errorf("#%s leads nowhere", link)
		}
	}
	if _, err := html.Parse(strings.NewReader(page)); err != nil {
		t.Error(err)
	}
}

var void = map[string]bool{"meta": true, "br": true}

func vetTag(t testing.TB, tok html.Token, ids map[string]bool, links *[]string) {
	t.Helper()
	switch tok.Data {
	case "script", "img", "iframe", "object", "embed", "link", "base", "form", "svg", "video", "audio", "input":
		t.Errorf("<%s> has no business here", tok.Data)
	}
	for _, a := range tok.Attr {
		switch {
		case strings.HasPrefix(a.Key, "on"), a.Key == "src", a.Key == "style", a.Key == "srcset":
			t.Errorf("<%s %s> has no business here", tok.Data, a.Key)
		case a.Key == "href" && (tok.Data != "a" || !strings.HasPrefix(a.Val, "#")):
			t.Errorf("<%s href=%q> leads out of the page", tok.Data, a.Val)
		case a.Key == "href":
			*links = append(*links, unescape(a.Val[1:]))
		case a.Key == "id" && ids[a.Val]:
			t.Errorf("two elements have the id %q", a.Val)
		case a.Key == "id":
			ids[a.Val] = true
		}
	}
}

// unescape undoes percent encoding, as a browser does with a fragment.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			var b byte
			for _, c := range []byte(strings.ToLower(s[i+1 : i+3])) {
				b = b<<4 | byte(strings.IndexByte("0123456789abcdef", c))
			}
			out = append(out, b)
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

// validate holds JSON against schema.json, and wants it in ASCII.
func validate(t testing.TB, text string) {
	t.Helper()
	raw, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
	for _, b := range []byte(text) {
		if b >= 0x7f || b < ' ' && b != '\n' {
			t.Fatalf("a byte %#x is in the JSON", b)
		}
	}
}

// TestPage: the pages and the JSON of all frameworks are well-formed and stand for themselves.
func TestPage(t *testing.T) {
	runs := []Run{bundled(t, "agent", nil), bundled(t, "egress", nil), bundled(t, "secret", nil), bundled(t, "interrupted", nil)}
	for _, f := range Frameworks() {
		r := build(t, input(f.ID, runs...))
		page, data := contents(t, r)
		vet(t, page)
		validate(t, data)
		var back Report
		if err := json.Unmarshal([]byte(data), &back); err != nil {
			t.Fatal(err)
		}
		for i, rec := range back.Records {
			if rec.JSON != r.Records[i].JSON {
				t.Errorf("record %v is not the same in JSON", rec.Ref)
			}
		}
		if !strings.Contains(html.UnescapeString(page), r.ContentSecurityPolicy()) {
			t.Error("the page does not hold its policy")
		}
	}
}

// nasty are texts that a workload could choose.
var nasty = []string{
	`</pre><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='x`, `{{.Notice}}`, `--><!--`, `]]>`, "<style>*{display:none}</style>",
	"\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe\u2066", "\u200b\u2028\u2029\ufeff\u00ad", "\x00\x01\x7f\u0085\u009b", "\xff\xfe\x80", "javascript:alert(1)", "\U000e0041\U0010ffff",
	strings.Repeat("A", 100<<10), "#r-r-1-1", "%22%3e", "日本語", "a\tb\r\nc",
}

// TestHostile: whatever a record says is shown as text.
func TestHostile(t *testing.T) {
	p := newTape("r-1")
	for _, s := range nasty {
		p.step = s
		x := audit.Text(s)
		p.add(guest, audit.KindExec, audit.Event{Exec: &audit.Exec{Proc: s, Exe: x, Argv: []audit.Text{x}, Cwd: x}})
		p.add(guest, audit.KindFile, audit.Event{File: &audit.File{Op: audit.FileWrite, Path: x, SHA256: s}})
		p.add(host, audit.KindFlow, audit.Event{Flow: &audit.Flow{State: audit.FlowOpen, Verdict: audit.Allow, Name: x, Rule: s}})
		p.add(host, audit.KindDNS, audit.Event{DNS: &audit.DNS{Name: x, Verdict: audit.Deny, Rule: s, Reason: s}})
		p.add(host, audit.KindLLM, audit.Event{LLM: &audit.LLM{Model: x}})
		p.add(host, audit.KindFinding, audit.Event{Finding: &audit.Finding{Rule: audit.Rule(s), Detail: s, Action: s}})
		p.add(host, audit.KindPolicy, audit.Event{Policy: &audit.Policy{Digest: s}})
		p.add(guest, audit.KindGap, audit.Event{Gap: &audit.Gap{Stage: audit.Stage(s), Cause: s}})
		p.secretOf(audit.Secret{Op: audit.SecretMint, Name: s, Broker: s})
		p.secretOf(audit.Secret{Op: audit.SecretUse, Name: s, Host: x})
	}
	p.add(host, audit.KindRun, audit.Event{Lifecycle: &audit.Lifecycle{Phase: audit.PhaseStart, Tier: nasty[0], TierNote: nasty[1], Mode: nasty[2], RulesetDigest: nasty[3], Project: nasty[4], Host: nasty[8]}})
	r := p.done()
	r.Run.Host, r.Run.Project = nasty[0], nasty[8]
	r.Verification.Report.KeyName = nasty[7]
	for _, id := range []string{"soc2", "nist80053", "euaiact"} { // together they ask everything
		in := input(id, r)
		in.Version = nasty[1]
		report := build(t, in)
		page, data := contents(t, report)
		vet(t, page)
		validate(t, data)
		for _, rec := range report.Records {
			if rec.JSON != "" && rec.JSON != string(p.rows[indexOf(p.rows, rec.Seq)].Body) {
				t.Errorf("record %d is not what was recorded", rec.Seq)
			}
		}
		for _, c := range report.Controls {
			for _, claim := range c.Claims {
				if n := utf8.RuneCountInString(claim.Text); n > 4000 {
					t.Errorf("%s %s: a claim of %d characters", c.ID, claim.Query, n)
				}
			}
		}
	}
}

func indexOf(rows []store.Row, seq uint64) int {
	for i, r := range rows {
		if r.Seq == seq {
			return i
		}
	}
	return -1
}

// TestNoUTF8: bytes that are no text go into the report all the same.
func TestNoUTF8(t *testing.T) {
	p := newTape("r-1")
	p.rows[0].Body = bytes.Replace(p.rows[0].Body, []byte(`"project":"p"`), []byte("\"project\":\"\xff\xfe\""), 1)
	r := build(t, input("soc2", p.done()))
	page, data := contents(t, r)
	vet(t, page)
	validate(t, data)
	if r.Records[0].Base64 == "" || r.Records[0].JSON != "" {
		t.Errorf("%+v", r.Records[0])
	}
}

// FuzzBuild: any bytes that a store could show end in a page that is whole.
func FuzzBuild(f *testing.F) {
	for _, s := range nasty[:len(nasty)-5] {
		body, err := json.Marshal(audit.Record{V: 1, Run: "r-1", Seq: 2, Event: audit.Event{Observer: host, Kind: audit.KindFinding, Step: s, Finding: &audit.Finding{Rule: audit.Rule(s)}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, "finding")
	}
	f.Add([]byte(`{"run":"r-1","seq":2,"time":"2026-11-03T12:00:00Z","observer":"host","kind":"flow","flow":{"state":"open","verdict":"allow"}}`), "flow")
	f.Add([]byte(`{"kind":"secret","secret":{"op":"mint","ttl_ns":-9223372036854775808}}`), "secret")
	f.Add([]byte(`{"kind":"run","observer":"host","lifecycle":null}`), "run")
	f.Add([]byte("{"), "exec")
	f.Fuzz(func(t *testing.T, body []byte, kind string) {
		p := newTape("r-1")
		p.seq++
		p.rows = append(p.rows, store.Row{Head: store.Head{Run: "r-1", Seq: p.seq, Kind: audit.Kind(kind), Time: p.rows[0].Time}, Body: body})
		r := p.done()
		page, data := contents(t, build(t, input("iso27001", r)))
		vet(t, page)
		if !json.Valid([]byte(data)) {
			t.Error("the JSON is none")
		}
	})
}
