package llmapi

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// answer writes one response.
type answer struct {
	w   http.ResponseWriter
	api string
	key string // the key in the request

	q      *question
	status int
	out    io.Writer
	packed *gzip.Writer // nil: not compressed
	events int
	broken bool
	sent   bool // complete, with usage
	in, cached, output, thinking,
	calls int
}

type m = map[string]any

// Served returns the description of the response.
func (a *answer) Served() Served {
	v := Served{API: a.api, Status: a.status, Key: a.key, Input: a.in, Cached: a.cached, Output: a.output, Thinking: a.thinking, Calls: a.calls, Sent: a.sent}
	v.Stream = a.q != nil && a.q.stream
	return v
}

// refuse responds with an error in the provider's format.
func (a *answer) refuse(status int, kind, message string) {
	a.status = status
	a.w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		a.w.Header().Set("Retry-After", "0")
	}
	a.w.WriteHeader(status)
	json.NewEncoder(a.w).Encode(a.fault(status, kind, message)) // the client may have disconnected
}

func (a *answer) fault(status int, kind, message string) any {
	switch a.api {
	case "anthropic":
		return m{"type": "error", "error": m{"type": kind, "message": message}, "request_id": "req_1"}
	case "gemini":
		return m{"error": m{"code": status, "message": message, "status": strings.ToUpper(kind)}}
	}
	return m{"error": m{"type": kind, "message": message, "param": nil, "code": nil}}
}

// answer responds with the model's reply.
func (a *answer) answer(q *question) {
	a.q, a.status, a.out = q, http.StatusOK, a.w
	r := q.think(a.key)
	a.in, a.thinking, a.calls = q.input, q.script.think, len(r.calls)
	if q.round > 0 {
		a.cached = len(strings.Fields(q.prompt))
	}
	a.output = a.thinking + len(r.words)
	for _, c := range r.calls {
		a.output += len(strings.Fields(c.command))
	}
	h := a.w.Header()
	h.Set("Content-Type", "application/json")
	if q.stream && !q.array {
		h.Set("Content-Type", "text/event-stream")
	}
	if q.script.echo {
		h.Set("X-Echo", a.key)
	}
	if q.script.gzip {
		h.Set("Content-Encoding", "gzip")
		a.packed = gzip.NewWriter(a.w)
		a.out = a.packed
	}
	a.w.WriteHeader(a.status)
	if q.stream {
		a.flush()
	}
	time.Sleep(q.script.first)
	map[string]func(reply){"anthropic": a.anthropic, "chat": a.chat, "responses": a.responses, "gemini": a.gemini}[a.api](r)
	if a.packed != nil && !a.broken {
		a.packed.Close()
	}
	a.sent = !a.broken && q.usage && !q.script.mute
	if a.broken && !q.script.trouble {
		panic(http.ErrAbortHandler) // aborts the connection
	}
}

// whole writes a response that is not streamed.
func (a *answer) whole(v any) { json.NewEncoder(a.out).Encode(v) }

// event writes one server-sent event, as the HTML standard specifies. name may be empty.
func (a *answer) event(name string, v any) {
	if s := a.q.script; s.after > 0 && a.events == s.after && !a.broken {
		a.broken = true
		if s.trouble {
			a.write("error", a.fault(529, "overloaded_error", "requested by the script"))
		}
	}
	if !a.broken {
		a.write(name, v)
	}
}

func (a *answer) write(name string, v any) {
	if a.events++; a.events > 1 {
		time.Sleep(a.q.script.next)
	}
	data, isText := v.(string)
	if !isText {
		b, _ := json.Marshal(v) // all values that are marshalled here are valid
		data = string(b)
	}
	switch {
	case a.q.array && a.events == 1:
		data = "[" + data
	case a.q.array:
		data = "\n,\n" + data
	default:
		data = "data: " + data + "\n\n"
	}
	if name != "" && !a.q.array {
		data = "event: " + name + "\n" + data
	}
	io.WriteString(a.out, data) // the client may have disconnected
	a.flush()
}

func (a *answer) flush() {
	if a.packed != nil {
		a.packed.Flush()
	}
	http.NewResponseController(a.w).Flush()
}

// usage returns v, or nothing if the script disables it.
func (a *answer) usage(v m) any {
	if a.q.script.mute {
		return nil
	}
	return v
}

// arguments returns the arguments of a call, as JSON, and in pieces.
func (c call) arguments() (whole string, pieces []string) {
	b, _ := json.Marshal(m{"command": c.command})
	letters := []rune(string(b))
	for i := 0; i < len(letters); i += 7 {
		pieces = append(pieces, string(letters[i:min(i+7, len(letters))]))
	}
	return string(b), pieces
}

// spaced returns the words as pieces of one text.
func (r reply) spaced() []string {
	pieces := make([]string, len(r.words))
	for i, w := range r.words {
		pieces[i] = w + " "
	}
	pieces[len(pieces)-1] = r.words[len(r.words)-1]
	return pieces
}

func (r reply) text() string { return strings.Join(r.words, " ") }
