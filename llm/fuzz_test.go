package llm

import (
	"math/rand/v2"
	"net/http"
	"reflect"
	"testing"
)

// fuzzed checks that arbitrary responses are parsed without a panic, within the limits, and with the same result for
// every split into pieces.
func fuzzed(f *testing.F, provider string) {
	for _, x := range load(f) {
		if s, _ := shapeOf(x.method, x.path); s.provider == provider {
			f.Add(x.path, x.request, uint16(x.status), x.header.Get("Content-Type"), "", x.body, uint64(1))
			f.Add(x.path, x.request, uint16(x.status), x.header.Get("Content-Type"), "gzip", x.body, uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, path string, request []byte, status uint16, kind, coding string, answer []byte, seed uint64) {
		if _, ok := shapeOf("POST", path); !ok {
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		x := &fixture{method: "POST", path: path, request: request, status: int(status), header: http.Header{"Content-Type": {kind}, "Content-Encoding": {coding}}, body: answer}
		b := NewTracker(1000, nil)
		one, other := x.play(b, atOnce), x.play(NewTracker(1000, nil), func(left int) int { return 1 + r.IntN(left) })
		if !reflect.DeepEqual(stable(one), stable(other)) {
			t.Errorf("%+v\n%+v", one, other)
		}
		if one.InputTokens < 0 || one.OutputTokens < 0 || len(one.ToolCalls) > maxToolCalls || len(one.Tools) > maxTools || one.Spent < 0 {
			t.Errorf("%+v", one)
		}
		b.Asked([]string{"sh", "-c", string(answer)})
	})
}

func FuzzAnthropic(f *testing.F) { fuzzed(f, anthropic) }
func FuzzOpenAI(f *testing.F)    { fuzzed(f, openai) }
func FuzzGemini(f *testing.F)    { fuzzed(f, gemini) }

func FuzzShape(f *testing.F) {
	for _, x := range load(f) {
		f.Add(x.path)
	}
	f.Add("/İİİİİİİİ:rawPredict") // letters that are longer in lower case
	f.Fuzz(func(t *testing.T, path string) {
		s, ok := shapeOf("POST", path)
		if ok && (s.provider == "" || s.api == "") {
			t.Errorf("%q: %+v", path, s)
		}
	})
}

func FuzzAsked(f *testing.F) {
	f.Add(`{"command":"ls -l"}`, "sh", "-c", "ls -l")
	f.Add(`[["a b","c"],"xyz"]`, "", "-", "\x00")
	f.Fuzz(func(t *testing.T, args, a, b, c string) {
		tracker := NewTracker(0, nil)
		tracker.asked.add("m1", "t", []byte(args))
		call, tool := tracker.Asked([]string{a, b, c})
		if (call == "") != (tool == "") {
			t.Error(call, tool)
		}
	})
}
