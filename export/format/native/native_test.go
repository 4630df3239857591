package native

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/sample"
)

// line is the parsed output.
type line struct {
	ID, Tenant, Host string
	Severity         export.Severity
	Erased           bool
	Record           json.RawMessage
	Base64           []byte `json:"record_base64"`
}

func read(t testing.TB, e export.Event) line {
	t.Helper()
	b, err := New().Append([]byte("x"), e)
	if err != nil || b[0] != 'x' || bytes.ContainsAny(b, "\r\n") {
		t.Fatalf("%v %q", err, b)
	}
	var l line
	if err := json.Unmarshal(b[1:], &l); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if l.ID != e.ID() || l.Severity != export.SeverityOf(e) {
		t.Errorf("%+v of %s", l, e.ID())
	}
	return l
}

// The output contains the record's bytes as they were hashed.
func TestExact(t *testing.T) {
	for _, s := range sample.All() {
		l := read(t, s.Event)
		switch {
		case s.Erased && (!l.Erased || !bytes.Contains(l.Record, []byte(`"seq":`))):
			t.Errorf("%s: %+v", s.Name, l)
		case !s.Erased && !bytes.Equal(l.Record, s.Body):
			t.Errorf("%s: %s", s.Name, l.Record)
		}
	}
}

func FuzzAppend(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "r-1", "acme")
	f.Add([]byte("{\n}"), "r\n1", "\xff")
	f.Add([]byte("0 "), "0", "0")
	f.Add([]byte("{\"a\":\"\xff\"}"), "", "")
	f.Fuzz(func(t *testing.T, body []byte, run, tenant string) {
		e := export.Event{Body: body, Tenant: tenant}
		e.Run = run
		b, _ := New().Append(nil, e)
		var l line
		if err := json.Unmarshal(b, &l); err != nil || bytes.ContainsAny(b, "\r\n") {
			t.Fatalf("%v %q", err, b)
		}
		if len(body) > 0 && !bytes.Equal(l.Record, body) && !bytes.Equal(l.Base64, body) {
			t.Errorf("%q became %q", body, b)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	f := New()
	all := sample.All()
	var buf []byte
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = f.Append(buf[:0], all[i%len(all)].Event)
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
