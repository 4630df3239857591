package redact

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

const secret = "hunter2-hunter2"

type named string

// loud encodes itself, like audit.Text.
type loud string

func (l loud) MarshalJSON() ([]byte, error) { return json.Marshal("loud " + string(l)) }

type embedded struct{ Promoted string }

type chain struct {
	Name string
	Next *chain
}

type everything struct {
	embedded
	S     string `json:"s"`
	N     named
	L     loud
	Ls    []loud
	B     []byte
	Raw   json.RawMessage
	P     *string
	PP    **named
	M     map[string]string
	MN    map[named][]string
	MI    map[int]*string
	A     [2]string
	Sum   [8]byte
	Any   any
	Anys  []any
	When  time.Time
	Until *time.Time
	List  *chain
	Num   int
	OK    bool
	F     float64
	Inner struct{ Deep []map[string][]named }
	Skip  string `json:"-"`
	Empty *everything
}

func full(s string) *everything {
	n := named(s)
	pn := &n
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	e := &everything{
		embedded: embedded{s}, S: "a " + s + " <b>", N: n, L: loud(s), Ls: []loud{"x", loud(s)},
		B: []byte(s), Raw: json.RawMessage(`{"k":"` + s + `"}`), P: &s, PP: &pn,
		M: map[string]string{s: s, "k": s}, MN: map[named][]string{n: {s}}, MI: map[int]*string{1: &s},
		A: [2]string{"", s}, Any: s,
		Anys: []any{1, nil, true, s, []any{s}, map[string]any{s: map[string]any{"x": s}}, embedded{s}, &embedded{s}},
		When: now, Until: &now, List: &chain{s, &chain{s, nil}}, Num: 7, OK: true, F: 1.5, Skip: s,
	}
	e.Inner.Deep = []map[string][]named{{s: {n, n}}}
	return e
}

func TestSealMasksEveryString(t *testing.T) {
	r := redactor(t, map[string]string{"v": secret})
	marker := r.rules.Load().values[0].marker
	got, want := full(secret), full(marker)
	sealed, err := r.Seal(got)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	plain, err := New(testKey).Seal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(sealed.Bytes()) != string(plain.Bytes()) {
		t.Errorf("sealed %s\nwant   %s", sealed.Bytes(), plain.Bytes())
	}
	if !json.Valid(sealed.Bytes()) || strings.Contains(string(sealed.Bytes()), "\n") || !strings.Contains(string(sealed.Bytes()), "<b>") {
		t.Errorf("not one line of JSON without HTML escapes: %s", sealed.Bytes())
	}
}

func TestSealKeepsKeysApart(t *testing.T) {
	r := redactor(t, map[string]string{"v": secret})
	m := map[string]int{secret: 1, "aHVudGVyMi1odW50ZXIy": 2, "68756e746572322d68756e74657232": 3}
	sealed, err := r.Seal(&m)
	if err != nil || len(m) != 3 {
		t.Fatalf("%s, %v", sealed.Bytes(), err)
	}
	sum := 0
	for k, v := range m {
		sum += v
		if !strings.HasPrefix(k, "[REDACTED:v:") {
			t.Errorf("key %q", k)
		}
	}
	if sum != 6 {
		t.Errorf("values are lost: %v", m)
	}
}

type unexported struct {
	OK     int
	hidden string
}

//lint:ignore U1000 reflection reads it
type hides struct{ in struct{ list []byte } }

type selfish struct{ Any any }

func TestSealFailsClosed(t *testing.T) {
	loop := &selfish{}
	loop.Any = loop
	array := struct{ A [15]byte }{[15]byte([]byte(secret))}
	cases := []struct {
		what string
		v    any
		want string
	}{
		{"no pointer", everything{}, "pointer"},
		{"nil", nil, "pointer"},
		{"nil pointer", (*everything)(nil), "pointer"},
		{"unexported field", &unexported{hidden: "x"}, "hidden"},
		{"unexported struct", &hides{}, "in of"},
		{"within an interface", &selfish{unexported{}}, "hidden"},
		{"function", &selfish{func() {}}, "cannot be in an event"},
		{"channel", &struct{ C chan int }{}, "cannot be in an event"},
		{"unexported interface", &struct{ err error }{}, "err"},
		{"builder", &struct{ B strings.Builder }{}, "unexported"},
		{"loop", loop, "contains itself"},
		{"array of bytes", &array, "cannot be masked"},
		{"number that is a secret", &struct{ N json.Number }{"1234567890"}, "number"},
	}
	r := redactor(t, map[string]string{"v": secret, "n": "1234567890"})
	for _, c := range cases {
		for range 2 { // the second time from the cache
			s, err := r.Seal(c.v)
			if err == nil || !strings.Contains(err.Error(), c.want) || s.Bytes() != nil {
				t.Errorf("%s: %s, error %v, want one with %q", c.what, s.Bytes(), err, c.want)
			}
		}
	}
}

func TestSealConcurrently(t *testing.T) {
	r := redactor(t, map[string]string{"v": secret})
	want, err := r.Seal(full(secret))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if got, err := r.Seal(full(secret)); err != nil || string(got.Bytes()) != string(want.Bytes()) {
					t.Errorf("%s, %v", got.Bytes(), err)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzSeal: sealed JSON contains no value, and JSON without one is unchanged.
func FuzzSeal(f *testing.F) {
	for _, s := range []string{
		`{"a":["hunter2-hunter2",{"hunter2-hunter2":1}]}`,
		`"aHVudGVyMi1odW50ZXIy"`, `{"x":"\u0068unter2-hunter2"}`, `[1,null,true,"x"]`, `{"":{"":[[]]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var v any
		if json.Unmarshal(in, &v) != nil {
			return
		}
		before := fmt.Sprintf("%#v", v)
		r := redactor(t, map[string]string{"v": secret})
		sealed, err := r.Seal(&v)
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		var back any
		if err := json.Unmarshal(sealed.Bytes(), &back); err != nil {
			t.Fatalf("%q: %s: %v", in, sealed.Bytes(), err)
		}
		if after := fmt.Sprintf("%#v", v); utf8.Valid(in) && after != fmt.Sprintf("%#v", back) {
			t.Fatalf("%q: %s is not the encoding of %s", in, sealed.Bytes(), after)
		} else if !strings.Contains(after, "REDACTED") && after != before {
			t.Fatalf("%q: changed without a match: %s", in, after)
		}
		if out := r.Bytes(sealed.Bytes()); string(out) != string(sealed.Bytes()) {
			t.Fatalf("%q: a value is in %s", in, sealed.Bytes())
		}
	})
}
