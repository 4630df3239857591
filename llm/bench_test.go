package llm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// BenchmarkBody measures how many bytes per second of a streamed response one call can process, in pieces of one event
// each, as they arrive.
func BenchmarkBody(b *testing.B) {
	for _, name := range []string{"anthropic-stream", "openai-stream", "openai-responses-stream", "gemini-stream"} {
		b.Run(name, func(b *testing.B) {
			f := named(b, name)
			events := bytes.SplitAfter(f.body, []byte("\n\n"))
			c := NewTracker(0, nil).Begin(Request{Method: f.method, Path: f.path})
			c.Response(f.status, f.header)
			b.SetBytes(int64(len(f.body)))
			b.ReportAllocs()
			for b.Loop() {
				for _, e := range events {
					c.Body(e)
				}
				c.answer.tools = toolCalls{ready: c.ready} // as many as in one response
			}
		})
	}
}

// BenchmarkRequest measures the request of a working agent: 1 MiB of messages.
func BenchmarkRequest(b *testing.B) {
	message := `{"role":"user","content":[{"type":"text","text":"` + strings.Repeat(`words, words and \"words\"\n`, 400) + `"}]},`
	body := []byte(`{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message, 100), ",") + `],"tools":[{"name":"bash"}]}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		c := NewTracker(0, nil).Begin(Request{Method: "POST", Path: "/v1/messages"})
		for p := body; len(p) > 0; p = p[min(len(p), 32<<10):] {
			c.Request(p[:min(len(p), 32<<10)])
		}
		c.Finish(nil)
	}
}

// BenchmarkAsked measures the cost of an exec event, with and without stored tool calls.
func BenchmarkAsked(b *testing.B) {
	argv := []string{"/bin/bash", "-c", "source /etc/profile && make -j2 test 2>&1 | tail -20"}
	for _, calls := range []int{0, maxAsked} {
		b.Run(fmt.Sprint(calls), func(b *testing.B) {
			tracker := NewTracker(0, nil)
			for i := range calls {
				tracker.asked.add("m1", "t", fmt.Appendf(nil, `{"command":"go test -run Test%d ./...","timeout":60}`, i))
			}
			b.ReportAllocs()
			for b.Loop() {
				tracker.Asked(argv)
			}
		})
	}
}
