package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// odd are bodies that JSON parsers have interpreted differently.
var odd = []string{
	`{"run":"r","seq":1,"time":"2262-01-01T00:00:00Z","kind":"gap","gap":{"count":3}}`,
	`{"run":"r","kind":"vm","time":"1970-01-01T00:00:00+14:00"}`,
	`{"run":"r","kind":"exec","exec":null,"time":"2026-01-01T00:00:00+14:00"}`,
	// Duplicates, and in other letter case: the last one counts, and objects are merged.
	`{"run":"r","run":"s","seq":1,"seq":2,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","RUN":"s","ſeq":3,"\u0073eq":4,"time":"2026-01-01T00:00:00Z","Kind":"vm","kind":"dns"}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":"/a","path":"/b"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":"/a","proc":"p"},"file":{"PATH":"/b"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":"/a"},"kind":"exec"}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","file":{"path":"/a"},"kind":"file"}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":"/a"},"exec":{"exe":5}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":{"base64":"/w=="},"sha256":"x"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":{"base64":null}}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":null,"proc":null}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":[]}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"file","file":{"path":"\ud800\u0000\n"}}`,
	"{\"run\":\"r\",\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"file\",\"file\":{\"path\":\"\xff\xe2\x82\"}}",
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"dns","dns":{"name":"A.EXAMPLE.."}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"flow","flow":{"name":".","dst_ip":"::1"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"run","observer":"guest","lifecycle":{"phase":"end"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"run","observer":"host","lifecycle":{"phase":"end","status":"done"}}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm","lifecycle":{"phase":5}}`,
	`{"run":"r","seq":18446744073709551615,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","seq":18446744073709551616,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","seq":1e2,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","seq":01,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","seq":-1,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","seq":null,"time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","time":"2026-02-29T00:00:00Z","kind":"vm"}`,
	`{"run":"r","time":"2028-02-29T23:59:60Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01T24:00:00Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01T00:00:00,5Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01T00:00:00.Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01T00:00:00.1234567891Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01t00:00:00z","kind":"vm"}`,
	// Invalid JSON in an irrelevant part.
	`{"v":01,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":1.,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":-,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":[1,],"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":{"a":1,},"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":[[[{"a":[]}]],{}],"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":[1}],"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":nul,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":NaN,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":"\x","run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"v":"\u12g4","run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	"{\"v\":\"tab\there\",\"run\":\"r\",\"time\":\"2026-01-01T00:00:00Z\",\"kind\":\"vm\"}",
	`{"v":1 ,"run": "r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"} `,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}{}`,
	`{"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm",}`,
	"\ufeff" + `{"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{"":"","run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`,
	`{}`, `[]`, `null`, ``, `{`, `{"`, `{"run`, `{"run"`, `{"run":`, `{"run":"`,
}

func seeds() [][]byte {
	var all [][]byte
	for _, text := range odd {
		all = append(all, []byte(text))
	}
	for _, f := range storetest.Frames("r-1", append(storetest.Events(12), everyKind()...)) {
		all = append(all, f.Body)
	}
	for _, depth := range []int{63, 64, 65} {
		all = append(all, nested("[", "", "]", depth), nested(`{"a":`, "1", "}", depth))
	}
	return all
}

func nested(open, inner, shut string, depth int) []byte {
	value := strings.Repeat(open, depth) + inner + strings.Repeat(shut, depth)
	return []byte(`{"x":` + value + `,"run":"r","time":"2026-01-01T00:00:00Z","kind":"vm"}`)
}

// TestDeep: deep nesting neither crashes a reader nor makes the two differ.
func TestDeep(t *testing.T) {
	for _, depth := range []int{1, 9998, 9999, 10000, 10001, store.MaxBody / 16} {
		for _, body := range [][]byte{nested("[", "", "]", depth), nested(`{"a":`, "1", "}", depth), nested("[", "", "", depth)} {
			got, err := store.ParseHead(body)
			want, wantErr := store.DecodeHead(body)
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) || (err == nil) && depth > 10000 {
				t.Errorf("depth %d: got %+v, %v; want %+v, %v", depth, got, err, want, wantErr)
			}
		}
	}
}

// everyKind has one event of each kind with fields of a head.
func everyKind() []audit.Event {
	at := storetest.Start().Add(123456789)
	long := audit.Text(strings.Repeat("output <&> \x1b[0m ü\n", 40))
	return []audit.Event{
		{Time: at, Observer: audit.Guest, Kind: audit.KindExec, Step: "s", Exec: &audit.Exec{Proc: "p", Exe: "/bin/sh", Argv: []audit.Text{"sh", "-c", long}}},
		{Time: at, Observer: audit.Guest, Kind: audit.KindExec, Exec: &audit.Exec{Proc: "p", Exe: "/bin/ü\xff"}},
		{Time: at, Observer: audit.Guest, Kind: audit.KindExit, Exit: &audit.Exit{Proc: "p", Code: -1}},
		{Time: at, Observer: audit.Guest, Kind: audit.KindFile, File: &audit.File{Proc: "p", Path: "/a", To: "/b", SHA256: "00ff"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindFlow, Flow: &audit.Flow{Proc: "p", Name: "A.example.", DstIP: "192.0.2.1"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindFlow, Flow: &audit.Flow{DstIP: "192.0.2.1"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindDNS, DNS: &audit.DNS{Name: "a.EXAMPLE", Answers: []string{"192.0.2.1"}}},
		{Time: at, Observer: audit.Host, Kind: audit.KindHTTP, HTTP: &audit.HTTP{Host: "a.example", Path: "/x?y", Credential: "token"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindLLM, LLM: &audit.LLM{Host: "a.example", ToolCalls: []audit.ToolCall{{Name: "host"}}}},
		{Time: at, Observer: audit.Host, Kind: audit.KindSecret, Secret: &audit.Secret{Name: "token", Host: "a.example"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindFinding, Finding: &audit.Finding{Rule: "x", Secret: "token", Proc: "p"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindNote, Note: &audit.Note{Who: "ann", About: "r-1", Seq: 3, Text: long, Tags: []string{"about"}}},
		{Time: at, Observer: audit.Host, Kind: audit.KindOutput, Output: &audit.Output{Stream: "tty", Text: long}},
		{Time: at, Observer: audit.Host, Kind: audit.KindVM, VM: &audit.VM{Op: "boot"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindPolicy, Policy: &audit.Policy{Digest: "x"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindProbe, Probe: &audit.Probe{Name: "x"}},
		{Time: at, Observer: audit.Host, Kind: audit.KindGap, Gap: &audit.Gap{Count: 3}},
	}
}

// FuzzParseHead compares the reader for the usual form with encoding/json: both
// must return the same or refuse the same, and agree with a full decoding of the record.
func FuzzParseHead(f *testing.F) {
	for _, body := range seeds() {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		h, err := store.ParseHead(body)
		want, wantErr := store.DecodeHead(body)
		if !reflect.DeepEqual(h, want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("got %+v, %v; want %+v, %v", h, err, want, wantErr)
		}
		if !bytes.Equal(body, kept) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			if !errors.Is(err, store.ErrMalformed) {
				t.Fatalf("not a typed error: %v", err)
			}
			return
		}
		if h.Time.UnixNano() < 0 {
			t.Fatalf("time %v does not fit", h.Time)
		}
		var r audit.Record
		if json.Unmarshal(body, &r) == nil && !h.SameColumns(columnsOf(r)) {
			t.Fatalf("head %+v, record %+v", h, r)
		}
	})
}

// columnsOf returns the head of a decoded record.
func columnsOf(r audit.Record) store.Head {
	h := store.Head{Run: r.Run, Seq: r.Seq, Time: r.Time, Observer: r.Observer, Kind: r.Kind, Step: r.Step}
	switch {
	case r.Kind == audit.KindExec && r.Exec != nil:
		h.Proc, h.Path = r.Exec.Proc, string(r.Exec.Exe)
	case r.Kind == audit.KindExit && r.Exit != nil:
		h.Proc = r.Exit.Proc
	case r.Kind == audit.KindFile && r.File != nil:
		h.Proc, h.Path, h.Hash = r.File.Proc, string(r.File.Path), r.File.SHA256
	case r.Kind == audit.KindFlow && r.Flow != nil:
		h.Proc, h.Host = r.Flow.Proc, hostName(string(r.Flow.Name))
		if h.Host == "" {
			h.Host = hostName(r.Flow.DstIP)
		}
	case r.Kind == audit.KindDNS && r.DNS != nil:
		h.Host = hostName(string(r.DNS.Name))
	case r.Kind == audit.KindHTTP && r.HTTP != nil:
		h.Host, h.Secret = hostName(string(r.HTTP.Host)), r.HTTP.Credential
	case r.Kind == audit.KindLLM && r.LLM != nil:
		h.Host = hostName(string(r.LLM.Host))
	case r.Kind == audit.KindSecret && r.Secret != nil:
		h.Secret, h.Host = r.Secret.Name, hostName(string(r.Secret.Host))
	case r.Kind == audit.KindFinding && r.Finding != nil:
		h.Proc, h.Rule, h.Secret = r.Finding.Proc, string(r.Finding.Rule), r.Finding.Secret
	case r.Kind == audit.KindNote && r.Note != nil:
		h.Path = r.Note.About
	}
	return h
}

// hostName is HostName, implemented byte by byte.
func hostName(s string) (name string) {
	for i := range len(s) {
		if c := s[i]; c >= 'A' && c <= 'Z' {
			name += string([]byte{c + 32})
		} else if c != '.' || i < len(s)-1 {
			name += string([]byte{c})
		}
	}
	return name
}

// TestUsualForm checks that records that Custody writes are parsed without encoding/json: otherwise
// parsing is much slower.
func TestUsualForm(t *testing.T) {
	for _, f := range storetest.Frames("r-1", append(storetest.Events(12), everyKind()...)) {
		h, err := store.DecodeHead(f.Body)
		if err != nil {
			t.Fatal(err)
		}
		_, ok := store.ScanHead(f.Body, "r-1")
		rare := h.Kind == audit.KindRun || h.Kind == audit.KindStep || h.Kind == audit.KindGap || !bytes.Equal(f.Body, bytes.ToValidUTF8(f.Body, nil)) ||
			strings.Contains(string(f.Body), "base64")
		if ok == rare {
			t.Errorf("usual form %v, want %v: %s", ok, !rare, f.Body)
		}
	}
}

// TestUsual compares eight bytes at a time with one at a time.
func TestUsual(t *testing.T) {
	for size := range 25 {
		for at := range size {
			for c := range 256 {
				for _, fill := range []byte{'a', 0x7f, 0x80, 0xff, ' ', '!', '#', '[', ']'} {
					b := bytes.Repeat([]byte{fill}, size)
					b[at] = byte(c)
					want := size
					if c == '"' || c == '\\' || c < ' ' {
						want = at
					}
					if got := store.Usual(b); got != want {
						t.Fatalf("%q: got %d, want %d", b, got, want)
					}
				}
			}
		}
	}
}

// TestTime compares the parser of times with that of package time, over all days
// of leap years and others, and over invalid times.
func TestTime(t *testing.T) {
	check := func(text string) {
		t.Helper()
		got, ok := store.ParseTime([]byte(text))
		var want time.Time
		err := want.UnmarshalText([]byte(text))
		if ok && (err != nil || got != want.UTC()) {
			t.Fatalf("%q: got %v, want %v, %v", text, got, want, err)
		}
	}
	for _, year := range []int{1900, 1970, 2000, 2026, 2028, 2100, 2261} {
		for month := range 14 {
			for day := range 33 {
				text := fmt.Sprintf("%04d-%02d-%02dT23:59:59.00000001Z", year, month, day)
				check(text)
				_, ok := store.ParseTime([]byte(text))
				if _, err := time.Parse(time.RFC3339, text); ok != (err == nil) {
					t.Errorf("%s: read %v, %v", text, ok, err)
				}
			}
		}
	}
	good := "2026-11-03T12:34:56.123456789Z"
	for i := range len(good) {
		check(good[:i])
		check(good[i:])
		for c := range 256 {
			check(good[:i] + string([]byte{byte(c)}) + good[i+1:])
			check(good[:i] + string([]byte{byte(c)}) + good[i:])
		}
	}
}

func TestHostName(t *testing.T) {
	for in, want := range map[string]string{"": "", ".": "", "a.": "a", "a..": "a.", "A.eXample": "a.example", "\xffÄ": "\xffÄ", "::1": "::1"} {
		if got := store.HostName(in); got != want || got != hostName(in) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func BenchmarkParseHead(b *testing.B) {
	frames := storetest.Frames("r-01k8a2b3c4d5e6f7g8h9jkmnpq", everyKind())
	for _, f := range frames {
		h, _ := store.DecodeHead(f.Body)
		if len(f.Body) > 1000 && h.Kind == audit.KindExec || h.Kind == audit.KindGap || bytes.Contains(f.Body, []byte("base64")) {
			continue
		}
		for name, parse := range map[string]func([]byte) (store.Head, error){"": store.ParseHead, "/json": store.DecodeHead} {
			b.Run(fmt.Sprintf("%s-%dB%s", h.Kind, len(f.Body), name), func(b *testing.B) {
				b.SetBytes(int64(len(f.Body)))
				for b.Loop() {
					parse(f.Body)
				}
			})
		}
	}
}
