package syslog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	gosyslog "github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/octetcounting"
	"github.com/leodido/go-syslog/v4/rfc5424"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
)

// FuzzMessage: for any event, an independent parser accepts the message and returns its contents.
func FuzzMessage(f *testing.F) {
	f.Add("r-1", "acme", "host1", "exec", `{"v":1}`, 6, int64(1e18), uint64(7))
	f.Add("r]1\"\\", "", "höst with\nline", "", "", -3, int64(0), uint64(0))
	f.Add("\xff\x00", "a\u0085b", strings.Repeat("h", 400), strings.Repeat("k", 40), "\xef\xbb\xbf<34>1 - ] \"", 99, int64(-1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, run, tenant, host, kind, data string, severity int, ns int64, seq uint64) {
		i := export.Item{ID: run + ":1", Time: time.Unix(0, ns), Severity: export.Severity(severity), Kind: audit.Kind(kind),
			Tenant: tenant, Host: host, Run: run, Seq: seq, Data: []byte(data)}
		parsed, err := rfc5424.NewParser().Parse(appendMessage(nil, i))
		if err != nil {
			t.Fatalf("%q: %v", appendMessage(nil, i), err)
		}
		m := parsed.(*rfc5424.SyslogMessage)
		if *m.Facility != facility || m.Appname == nil || *m.Appname != appName || !m.Timestamp.Equal(i.Time.Truncate(time.Microsecond)) {
			t.Fatalf("%+v of %+v", m, i)
		}
		if got := text(m.Message); got != data {
			t.Fatalf("data %q became %q", data, got)
		}
		if p := (*m.StructuredData)[sdID]; legible(run) && (p["id"] != i.ID || p["run"] != run) || legible(tenant) && p["tenant"] != tenant {
			t.Fatalf("%q of %+v", p, i)
		}
	})
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// legible reports whether a parameter can contain s unchanged.
func legible(s string) bool {
	return strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// TestFrames: several messages are concatenated, each after its length.
func TestFrames(t *testing.T) {
	var b []byte
	for seq := range uint64(3) {
		b = appendFrame(b, export.Item{ID: "r:1", Run: "r", Seq: seq, Time: time.Unix(1, 0), Data: []byte("two\nlines 9 <1>1")})
	}
	n := 0
	p := octetcounting.NewParser(gosyslog.WithListener(func(r *gosyslog.Result) {
		if r.Error != nil {
			t.Error(r.Error)
		}
		n++
	}))
	p.Parse(bytes.NewReader(b))
	if n != 3 {
		t.Errorf("%d messages", n)
	}
}
