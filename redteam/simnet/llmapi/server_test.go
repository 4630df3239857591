package llmapi_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/redteam/simnet/llmapi"
)

const key = "sk-test-0123456789"

// asked is a request to the model, like an agent's.
type asked struct {
	name, path, body string
	field            string // the header field with the key
}

func forms(prompt string) []asked {
	p := fmt.Sprintf("%q", prompt)
	const anthropicTools = `"tools":[{"name":"bash","input_schema":{"type":"object"}}]`
	const chatTools = `"tools":[{"type":"function","function":{"name":"bash"}}]`
	return []asked{
		{"anthropic", "/v1/messages", `{"model":"m-1","max_tokens":9,` + anthropicTools + `,"system":"be brief","messages":[{"role":"user","content":` + p + `}]}`, "x-api-key"},
		{"anthropic stream", "/v1/messages", `{"model":"m-1","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":` + p + `}]}]}`, "x-api-key"},
		{"chat", "/v1/chat/completions", `{"model":"m-1",` + chatTools + `,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":` + p + `}]}`, "Authorization"},
		{"chat stream", "/v1/chat/completions", `{"model":"m-1","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":` + p + `}]}`, "Authorization"},
		{"responses", "/v1/responses", `{"model":"m-1","input":` + p + `}`, "Authorization"},
		{"responses stream", "/v1/responses", `{"model":"m-1","stream":true,"input":[{"role":"user","content":[{"type":"input_text","text":` + p + `}]}]}`, "Authorization"},
		{"gemini", "/v1beta/models/m-1:generateContent", `{"contents":[{"role":"user","parts":[{"text":` + p + `}]}]}`, "x-goog-api-key"},
		{"gemini stream", "/v1beta/models/m-1:streamGenerateContent?alt=sse", `{"contents":[{"role":"user","parts":[{"text":` + p + `}]}]}`, "x-goog-api-key"},
		{"gemini array", "/v1beta/models/m-1:streamGenerateContent", `{"contents":[{"role":"user","parts":[{"text":` + p + `}]}]}`, "x-goog-api-key"},
	}
}

// exchange makes a request and has a Book read along.
func exchange(t *testing.T, b *llm.Tracker, url string, a asked, value string) (*audit.LLM, *http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("POST", url+a.path, strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	if a.field == "Authorization" {
		value = "Bearer " + value
	}
	req.Header.Set(a.field, value)
	req.Header.Set("Accept-Encoding", "identity") // otherwise the client decompresses the response
	c := b.Begin(llm.Request{Method: "POST", Host: "llm.example", Path: a.path, Header: req.Header})
	c.Request([]byte(a.body))
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	c.Response(res.StatusCode, res.Header)
	var all bytes.Buffer
	_, err = io.Copy(&all, io.TeeReader(res.Body, body{c}))
	return c.Finish(err), res, all.String()
}

type body struct{ *llm.Call }

func (b body) Write(p []byte) (int, error) { b.Body(p); return len(p), nil }

func serve(t *testing.T) (*llmapi.Server, string) {
	s := llmapi.New(key)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// Package llm finds exactly the tokens that the model reports, in each format.
func TestToTheToken(t *testing.T) {
	const prompt = "Please work:\nrun: echo \"grüße\" > 你好.txt\nrun: ls -la\nthen: cat 你好.txt\nthink: 7\nsay: all is well\n"
	for _, gz := range []string{"", "gzip: on\n"} {
		for _, a := range forms(prompt + gz) {
			t.Run(a.name+gz, func(t *testing.T) {
				s, url := serve(t)
				b := llm.NewTracker(0, nil)
				e, _, text := exchange(t, b, url, a, key)
				want := s.Served()[0]
				if e.Status != 200 || e.Incomplete != "" || e.InputTokens != int64(want.Input) || e.OutputTokens != int64(want.Output) || e.CacheReadTokens != int64(want.Cached) || len(e.ToolCalls) != 2 || e.Model != "m-1" {
					t.Errorf("%+v\nwant %+v\n%s", e, want, text)
				}
				if want.Output != 4+len(strings.Fields("echo \"grüße\" > 你好.txt ls -la"))+7 {
					t.Errorf("output is %d", want.Output)
				}
				if strings.Contains(a.name, "stream") != e.Stream {
					t.Error("stream", e.Stream)
				}
				for _, argv := range [][]string{{"sh", "-c", "echo \"grüße\" > 你好.txt"}, {"ls", "-la"}} {
					if call, _ := b.Asked(argv); call != e.ID {
						t.Errorf("nobody asked for %q: %+v", argv, e.ToolCalls)
					}
				}
			})
		}
	}
}

func TestKey(t *testing.T) {
	for _, a := range forms("say: hello") {
		s, url := serve(t)
		e, _, _ := exchange(t, llm.NewTracker(0, nil), url, a, "placeholder")
		if e.Status != 401 || !strings.Contains(strings.ToLower(string(e.Error)), "authentication_error: invalid api key") || s.Served()[0].Key == key {
			t.Errorf("%s: %+v", a.name, e)
		}
		if strings.Contains(a.path, "?") {
			a.path += "&key=another"
		} else {
			a.path += "?key=another"
		}
		if e, _, _ := exchange(t, llm.NewTracker(0, nil), url, a, key); e.Status != 401 {
			t.Errorf("%s: a second key did no harm", a.name)
		}
	}
}

func TestFailures(t *testing.T) {
	_, url := serve(t)
	b := llm.NewTracker(0, nil)
	for _, a := range forms("fail: 429 2\nsay: hello") {
		a.body = strings.Replace(a.body, "hello", "hello "+a.name, 1)
		for i, status := range []int{429, 429, 200, 200} {
			e, _, _ := exchange(t, b, url, a, key)
			retry := i
			if i == 3 {
				retry = 0
			}
			if e.Status != status || e.Retry != retry || (e.Error == "") != (status == 200) {
				t.Errorf("%s, %d: %+v", a.name, i, e)
			}
		}
	}
	for _, a := range forms("trouble: 2\nsay: one two three") {
		if !strings.Contains(a.name, "stream") {
			continue
		}
		if e, _, _ := exchange(t, b, url, a, key); e.Error == "" {
			t.Errorf("%s: %+v", a.name, e)
		}
	}
	for _, a := range forms("break: 2\nsay: one two three") {
		if !strings.Contains(a.name, "stream") && a.name != "gemini array" {
			continue
		}
		if e, _, _ := exchange(t, b, url, a, key); !strings.Contains(e.Incomplete, "broke off") {
			t.Errorf("%s: %+v", a.name, e)
		}
	}
}

func TestOptions(t *testing.T) {
	_, url := serve(t)
	for _, a := range forms("echo: on\nusage: off\npad: 5\nwait: 20ms 1ms") {
		e, res, text := exchange(t, llm.NewTracker(0, nil), url, a, key)
		if res.Header.Get("X-Echo") != key || !strings.Contains(text, key) {
			t.Errorf("%s: no echo: %s", a.name, text)
		}
		if !strings.Contains(e.Incomplete, "the provider sent no usage") || e.InputTokens+e.OutputTokens != 0 {
			t.Errorf("%s: %+v", a.name, e)
		}
		if e.FirstTokenNS < (20 * time.Millisecond).Nanoseconds() {
			t.Errorf("%s: the first token after %d ns", a.name, e.FirstTokenNS)
		}
	}
	for _, a := range forms("gzip: on\nsay: hello") {
		_, res, packed := exchange(t, llm.NewTracker(0, nil), url, a, key)
		r, err := gzip.NewReader(strings.NewReader(packed))
		if err != nil || res.Header.Get("Content-Encoding") != "gzip" {
			t.Fatal(a.name, err)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Error(a.name, err)
		}
	}
}
