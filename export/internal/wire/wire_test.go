package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
)

// shown is the slow oracle for the written form of a text.
func shown(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteRune(r)
		}
		s = s[n:]
	}
	return b.String()
}

func decode(t testing.TB, b []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return m
}

// The output is the JSON that encoding/json would write.
func TestObject(t *testing.T) {
	w := New([]byte("before"))
	top := w.Root()
	top.Str("s", "a\"b\\")
	o := top.Obj("o")
	o.StrIf("none", "")
	o.IntIf("none", 0)
	empty := o.Obj("empty")
	empty.End()
	o.Int("i", -5)
	a := o.Arr("a")
	e := a.Elem()
	e.Bool("b", false)
	e.End()
	e = a.Elem()
	e.Uint("u", 7)
	e.End()
	a.End()
	gone := o.Arr("gone")
	gone.End()
	o.End()
	top.Join("j", "", "x", "", "y")
	top.Time("t", time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)))
	top.Texts("l", []audit.Text{"1", ""})
	top.Strs("none", nil)
	const want = `before{"s":"a\"b\\","o":{"i":-5,"a":[{"b":false},{"u":7}]},"j":"x y","t":"2026-01-02T02:04:05.000000006Z","l":["1",""]}`
	if got := string(w.Finish()); got != want {
		t.Errorf("\n%s\n%s", got, want)
	}
}

func TestMarks(t *testing.T) {
	w := New(nil)
	top := w.Root()
	o := top.Obj("file")
	o.Str("path", strings.Repeat("ü", MaxText))
	o.Str("name", "\xff")
	o.Texts("list", []audit.Text{"\xfe", "ok", "\xfd"})
	o.End()
	top.Uint("n", math.MaxUint64)
	w.Notes.Quiet = true
	top.Str("again", "\xff")
	w.Notes.Quiet = false
	w.Notes.Write(top)
	m := decode(t, w.Finish())
	if n := len(m["file"].(map[string]any)["path"].(string)); n != MaxText {
		t.Errorf("%d bytes are left of the path", n)
	}
	if got := fmt.Sprint(m["truncated"]); got != fmt.Sprintf("map[file.path:%d n:0]", 2*MaxText) {
		t.Error(got)
	}
	want := map[string]any{"file.name": "/w==", "file.list": "/g==", "file.list#2": "/Q=="}
	if !reflect.DeepEqual(m["base64"], want) {
		t.Errorf("%v", m["base64"])
	}
}

// However much is written in lists, there is space for other texts, and for the envelope.
func TestRoom(t *testing.T) {
	w := New(nil)
	top := w.Root()
	long := audit.Text(strings.Repeat("x", MaxText))
	list := make([]audit.Text, 1000)
	for i := range list {
		list[i] = long
	}
	top.Command("command", list)
	top.Texts("list", list)
	top.Str("other", string(long))
	for range 100 {
		top.Str("more", string(long))
	}
	if len(w.b) > MaxTotal+10_000 {
		t.Errorf("%d bytes", len(w.b))
	}
	w.Envelope()
	top.Str("uid", "r-1:17")
	w.Notes.Write(top)
	m := decode(t, w.Finish())
	if m["other"] != string(long) || m["uid"] != "r-1:17" {
		t.Errorf("what is no list was cut")
	}
	if got := m["truncated"].(map[string]any); got["command"] == nil || got["list"] == nil || got["more"] == nil {
		t.Errorf("%v", got)
	}
}

func TestCommand(t *testing.T) {
	for want, argv := range map[string][]audit.Text{
		`git commit -m 'it'\''s done' ''`: {"git", "commit", "-m", "it's done", ""},
		`a=b 'x y' '$(z)' '*'`:            {"a=b", "x y", "$(z)", "*"},
		"'\n' 'ü'":                        {"\n", "ü"},
	} {
		w := New(nil)
		top := w.Root()
		top.Command("c", argv)
		if got := decode(t, w.Finish())["c"]; got != want {
			t.Errorf("%q became %q, not %q", argv, got, want)
		}
	}
}

// FuzzText: any text is written unchanged, except bytes that are not UTF-8, which are noted.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00\x1f\x7f\u0080\u2028\u2029", "\xff\xfe", "\"\\", "ü€😀", "\xf0\x9f\x98", "\u202e", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > MaxText {
			return
		}
		w := New(nil)
		top := w.Root()
		top.Str("s", s)
		top.Texts("l", []audit.Text{"x", audit.Text(s)})
		top.Join("j", s, "y")
		w.Notes.Write(top)
		b := w.Finish()
		if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool {
			return r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x2028 || r == 0x2029
		}) {
			t.Fatalf("%q", b)
		}
		m := decode(t, b)
		if m["s"] != shown(s) || m["l"].([]any)[1] != shown(s) {
			t.Errorf("%q became %q", s, m["s"])
		}
		if _, kept := m["base64"]; kept == utf8.ValidString(s) {
			t.Errorf("%q is kept beside: %v", s, kept)
		}
	})
}
