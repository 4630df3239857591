package llm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"mime"
	"net/http"
	"strings"
	"sync"
)

// Limits for one call, in bytes; beyond them the event is incomplete.
const (
	maxText  = 4 << 20 // of one JSON text, without the members that are not needed
	maxTools = 512     // offered tools
	maxWords = 4 << 10 // text of an error, or of the reason for an incomplete exchange
)

// Call is one LLM API call. It is safe for concurrent use, if the pieces of each body are passed in order.
//
//	         Response             Finish
//	asking ------------> answering ----------> over
//	            Request *    Body *       (also from asking, if there is no response)
//
// A server may respond before the request is complete: Request can be called while answering. Calls after Finish are
// ignored.
// comes after Finish is not looked at.
type Call struct {
	tracker *Tracker
	id      string
	shape   shape
	req     Request

	mu      sync.Mutex // guards the fields below
	over    bool
	asked   question
	sum     hash.Hash // of the request's body
	out     *decoder  // of the request
	outText *sieve
	sent    int64 // bytes of the request

	status int
	stream bool // the response is a stream of events
	in     *decoder
	inText *sieve
	got    int64 // bytes of the answer
	texts  int   // parsed texts of the response
	answer answer
	paid   int64 // the response's tokens that were reported to the Tracker
}

// question has the needed members of a request.
type question struct {
	Model   string  `json:"model"`
	Tools   []offer `json:"tools"`
	Old     []offer `json:"functions"` // OpenAI's, deprecated
	Request *struct {
		Tools []offer `json:"tools"`
	} `json:"request"` // Google's command line tools
}

// offer is one offered tool, or several (Gemini's).
type offer struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
	Custom struct {
		Name string `json:"name"`
	} `json:"custom"`
	Declarations []struct {
		Name string `json:"name"`
	} `json:"functionDeclarations"`
	Declared []struct {
		Name string `json:"name"`
	} `json:"function_declarations"`
}

var questionKeep = func() keep {
	named := keep{"name": nil}
	offers := keep{
		"name": nil, "type": nil, "function": named, "custom": named,
		"functionDeclarations": named, "function_declarations": named,
	}
	return keep{"model": nil, "tools": offers, "functions": named, "request": {"tools": offers}}
}()

func newCall(b *Tracker, id string, s shape, r Request) *Call {
	c := &Call{tracker: b, id: id, shape: s, req: r, sum: sha256.New()}
	c.outText = &sieve{keep: questionKeep, limit: maxText, whole: func(text []byte) {
		_ = json.Unmarshal(text, &c.asked) // values with unexpected types are ignored
	}}
	c.out = newDecoder(r.Header.Values("Content-Encoding"), c.outText)
	c.answer.tools.ready = c.ready
	return c
}

// ID returns the call's id, unique in the Tracker.
func (c *Call) ID() string { return c.id }

// Request processes a piece of the request's body as it is sent to the server. It does not keep p.
func (c *Call) Request(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.sum.Write(p) // never fails
	c.sent += int64(len(p))
	c.out.Write(p) // never fails
}

// Response processes the head of the response.
func (c *Call) Response(status int, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.in != nil {
		return
	}
	c.status = status
	c.answer.amazonUsage(header)
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	read, keep := dialectOf(c.shape.api)
	if !c.success() {
		read, keep = (*answer).refusal, refusalKeep
	}
	c.inText = &sieve{keep: keep, limit: maxText, whole: func(text []byte) { c.read(read, text) }}
	c.in = newDecoder(header.Values("Content-Encoding"), c.inText)
	switch {
	case kind == "text/event-stream":
		c.stream, c.in.to = true, c.events()
	case kind == "application/vnd.amazon.eventstream":
		c.in.wrong = "it is an event stream in Amazon's format, which is not supported"
	case !strings.HasSuffix(kind, "json"):
		c.in.to = (*unnamed)(c)
	}
}

// unnamed decides by the first byte whether a response is events or JSON, if the server does not declare it.
type unnamed Call

func (u *unnamed) Write(p []byte) (int, error) {
	text := bytes.TrimLeft(p, " \t\r\n")
	if len(text) == 0 {
		return len(p), nil
	}
	c := (*Call)(u)
	c.in.to = c.inText
	if strings.IndexByte("deir:\xEF", text[0]) >= 0 { // data, event, id, retry, a comment, a byte order mark
		c.stream, c.in.to = true, c.events()
	}
	c.in.to.Write(text) // never fails
	return len(p), nil
}

func (c *Call) success() bool { return c.status/100 == 2 }

// events returns the parser of the response's events.
func (c *Call) events() *events {
	return &events{
		data: func(p []byte) { c.inText.Write(p) }, // never fails
		whole: func() {
			c.inText.end()
			if wrong := c.inText.wrong; wrong != "" || !c.inText.idle() {
				c.answer.notes.add("an event was not understood: " + or(wrong, "it is no whole JSON text"))
			}
			c.inText.reset()
		},
	}
}

// streamEnd is a sieve's error for [DONE], the data of the last event in OpenAI's streams.
const streamEnd = "DONE"

// read parses one JSON text of the response.
func (c *Call) read(read dialect, text []byte) {
	if c.stream && string(text) == streamEnd {
		c.answer.ended = true
		return
	}
	c.texts++
	if err := read(&c.answer, text); err != nil {
		c.answer.notes.add("part of the answer is no JSON")
	}
}

// Body processes a piece of the response's body as it arrives from the server. over reports that the budget is used up,
// by this call or by others, and the flow must end. It does not keep p.
func (c *Call) Body(p []byte) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.in == nil {
		return c.tracker.Spent() != nil
	}
	c.got += int64(len(p))
	c.in.Write(p) // never fails
	if !c.stream && len(p) > 0 && c.success() {
		c.answer.touch()
	}
	return c.pay(c.answer.usage.total())
}

// pay reports the call's cost so far to the Tracker.
func (c *Call) pay(total int64) (over bool) {
	more := max(total-c.paid, 0)
	c.paid += more
	return c.tracker.spend(more)
}

// ready is called for each complete tool call.
func (c *Call) ready(t *toolCall) {
	if t.id == "" { // Gemini has no ids
		for i, other := range c.answer.tools.list {
			if other == t {
				t.id = fmt.Sprintf("%s.%d", c.id, i+1)
			}
		}
	}
	if len(t.id) <= maxName {
		c.tracker.asked.add(c.id, t.id, t.args)
	}
}
