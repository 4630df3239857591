package llm

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// streamed parses a complete stream as the standard describes (WHATWG HTML, section 9.2.6): it is the slow oracle of
// events.
func streamed(stream string) (events []string) {
	stream = strings.TrimPrefix(stream, byteOrderMark)
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	data := ""
	for _, line := range lines[:len(lines)-1] { // the last line has no end
		if line == "" {
			if data != "" {
				events = append(events, strings.TrimSuffix(data, "\n"))
			}
			data = ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		if field == "data" {
			data += strings.TrimPrefix(value, " ") + "\n"
		}
	}
	return events
}

// taken parses the stream with events, in pieces.
func taken(stream string, cut func(int) int) (all []string) {
	var data []byte
	e := &events{
		data:  func(p []byte) { data = append(data, p...) },
		whole: func() { all, data = append(all, string(data)), nil },
	}
	// Ignore data of an event that the stream's end truncated.
	pieces([]byte(stream), cut, func(p []byte) { e.Write(p) })
	return all
}

func TestEvents(t *testing.T) {
	for _, stream := range []string{
		"", "\n", "data: a\n\n", "data:a\ndata: b\n\n", "data\n\n", "data\ndata\n\n", "data:\n\n", "data:  two spaces\n\n",
		": comment\n\n", ":\n\ndata: x\n\n", "event: y\n\n", "event: y\ndata: x\n\n", "data: cut off", "data: cut off\n",
		byteOrderMark + "data: m\n\n", byteOrderMark[:2] + "data: m\n\n", "\xEFdata: m\n\ndata: n\n\n", byteOrderMark + byteOrderMark + "data: m\n\n",
		"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", "data: a\r\ndata: b\n\rdata: c\n\n", "\r\n\ndata: a\n\n",
		" data: a\n\n", "data : a\n\n", "Data: a\n\n", "datax: a\n\ndat: b\n\n", "data: a: b\n\n", "data: 你好 🚀\n\n", "data: \x00\xff\n\n",
	} {
		want := streamed(stream)
		for _, cut := range []func(int) int{atOnce, byOne} {
			if got := taken(stream, cut); !reflect.DeepEqual(got, want) {
				t.Errorf("%q: %q, want %q", stream, got, want)
			}
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\nevent: b\rdata\n\n", uint64(1))
	f.Add(byteOrderMark+"data:x\n\n: c\n\n", uint64(2))
	f.Add("\xEF\xBBdata: m\n\n", uint64(3))
	f.Fuzz(func(t *testing.T, stream string, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		got, want := taken(stream, func(left int) int { return 1 + r.IntN(left) }), streamed(stream)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", stream, got, want)
		}
	})
}

// sifted returns what a sieve keeps of a value: it is the slow oracle.
func sifted(v any, k keep) any {
	if k == nil {
		return v
	}
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, element := range v {
			list = append(list, sifted(element, k))
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for name, member := range v {
			if sub, ok := k[name]; ok {
				m[name] = sifted(member, sub)
			}
		}
		return m
	}
	return v
}

var someKeep = keep{"a": nil, "b": {"c": nil, "d": {"a": nil}}, "ü": nil}

// sieve returns the texts that a sieve returns.
func sieved(text []byte, k keep, cut func(int) int) (texts [][]byte, s *sieve) {
	s = &sieve{keep: k, limit: 1 << 20, whole: func(text []byte) { texts = append(texts, bytes.Clone(text)) }}
	pieces(text, cut, func(p []byte) { s.Write(p) })
	s.end()
	return texts, s
}

func checkSieve(t *testing.T, text []byte, cut func(int) int) {
	t.Helper()
	var v any
	texts, s := sieved(text, someKeep, cut)
	if json.Unmarshal(text, &v) != nil {
		return // encoding/json rejects what remains of other text; the sieve only must end
	}
	if hasTwins(text) {
		return // the sieve does not decide which of two members counts
	}
	want := []any{v}
	if list, ok := v.([]any); ok {
		want = list
	}
	if s.wrong != "" || !s.idle() || len(texts) != len(want) {
		t.Fatalf("%s: %d texts, want %d: %q", text, len(texts), len(want), s.wrong)
	}
	for i := range want {
		var got any
		if err := json.Unmarshal(texts[i], &got); err != nil {
			t.Fatalf("%s: %s: %v", text, texts[i], err)
		}
		if want := sifted(want[i], someKeep); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v, want %v", text, got, want)
		}
	}
}

// hasTwins reports whether an object in a text has two members with one name.
func hasTwins(text []byte) bool {
	d := json.NewDecoder(bytes.NewReader(text))
	var open []map[string]bool // nil: an array
	key := []bool{}
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		n := len(open) - 1
		switch tok := tok.(type) {
		case json.Delim:
			switch tok {
			case '{':
				if n >= 0 {
					key[n] = true
				}
				open, key = append(open, map[string]bool{}), append(key, true)
			case '[':
				if n >= 0 {
					key[n] = true
				}
				open, key = append(open, nil), append(key, false)
			default:
				open, key = open[:n], key[:n]
			}
			continue
		case string:
			if n >= 0 && open[n] != nil && key[n] {
				if open[n][tok] {
					return true
				}
				open[n][tok], key[n] = true, false
				continue
			}
		}
		if n >= 0 {
			key[n] = true
		}
	}
}

var sieveSeeds = []string{
	`{}`, `[]`, `{"a":1}`, `{"x":1}`, `{"x":{"a":[1,{"a":2}]},"a":"y"}`, `{"x":1,"a":2,"y":3,"b":{"c":"4","x":5,"d":[{"a":6,"z":7},8,[{"a":9}]]}}`,
	`[{"a":1},{"x":2},3,"four",[5,{"a":6,"x":7}],null]`, `"s"`, `12`, `null`, ` { "a" : [ 1 , 2 ] , "x" : [ ] , "b" : { } } `,
	`{"\u0061":"\"}","\u0078":"\\","b":{"c":"\\\""}}`, `{"ü":"ü","\u00fc2":3}`, `{"x":"\\","a":"]"}`, `{"x":[[[{"y":"}"}]]],"a":true}`,
	`{"a":1`, `{"a"}`, `{"a":}`, `{,}`, `[1,]`, `}`, `]`, `{"a":1}}`, `{"a":1]`, `{"a" "b"}`, `:`, `,`, `{1:2}`, `{"a":1 "b":2}`, `{"a":"`, `tru`, `{"a":tru,"x":fals}`,
	`[DONE]`, "{\"a\":\"\x00\xff\"}", `{"a":-1.5e-7}`, `{"b":1,"b":{"c":2}}`,
}

func TestSieve(t *testing.T) {
	for _, text := range sieveSeeds {
		checkSieve(t, []byte(text), atOnce)
		checkSieve(t, []byte(text), byOne)
		one, a := sieved([]byte(text), someKeep, atOnce)
		other, b := sieved([]byte(text), someKeep, byOne)
		if !reflect.DeepEqual(one, other) || a.wrong != b.wrong {
			t.Errorf("%s: %q %s and %q %s", text, one, a.wrong, other, b.wrong)
		}
	}
}

// Kept values are unchanged, byte for byte.
func TestSieveLeavesBytes(t *testing.T) {
	const input = `{"b":{"c": { "z" :1,"y":[ 1 , "\u00e9\/" ] ,  "x" : {  } }, "q":1}}`
	texts, _ := sieved([]byte(input), someKeep, byOne)
	if want := `{"b":{"c":{ "z" :1,"y":[ 1 , "\u00e9\/" ] ,  "x" : {  } }}}`; len(texts) != 1 || string(texts[0]) != want {
		t.Errorf("%s, want %s", texts, want)
	}
}

func FuzzSieve(f *testing.F) {
	for _, s := range sieveSeeds {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		checkSieve(t, text, func(left int) int { return 1 + r.IntN(left) })
	})
}
