// Package llmapi is the LLM API of the simulated internet, for policies that are tried there, demonstrations and tests. It
// speaks the wire formats of Anthropic's Messages, OpenAI's Chat Completions and
// Responses, and Gemini's generateContent, whole and streamed. What it "thinks" is a script in the
// first message that a user sends, a line for each wish; other lines are small talk:
//
//	run: COMMAND       asks for a tool call with {"command": COMMAND}; several lines in a row: all in one answer
//	then: COMMAND      the same, after the results of those before
//	say: TEXT          the last answer, when all results are there
//	pad: N             N words more in it
//	think: N           N tokens of reasoning
//	fail: STATUS N     answers STATUS to the first N requests of this script (429, 529, 500, ...)
//	break: N           ends the connection after N events of a stream, each time
//	trouble: N         an error in the stream after N events, each time
//	wait: FIRST NEXT   durations before the first content and between pieces of it
//	usage: off         sends none
//	echo: on           shows the key that came, in the field X-Echo and in the last answer
//	gzip: on           compresses the answer
//
// A token is a word: what white space parts. Input is all strings of the conversation, roles and ids as well; after
// the first round the script itself counts as read from a cache.
package llmapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server is the model. It is an http.Handler and may be used concurrently.
type Server struct {
	key string

	mu     sync.Mutex // guards what follows
	served []Served
	failed map[string]int // of each script, how many requests were answered with its failure
}

// Served is one request for an answer, and what the answer said about itself.
type Served struct {
	API      string // anthropic, chat, responses or gemini; empty: none that is known
	Status   int
	Stream   bool
	Input    int // tokens, with those of the cache
	Cached   int
	Output   int // tokens, with those of reasoning
	Thinking int
	Calls    int    // of tools
	Sent     bool   // usage was sent, and the answer was not broken off before
	Key      string // that was presented
}

// New returns a server that answers clients that present the key, and only the key: another one
// beside it is refused. It is presented as the providers want it: x-api-key, api-key or x-goog-api-key,
// as a bearer's token, or as the parameter key.
func New(key string) *Server { return &Server{key: key, failed: map[string]int{}} }

// Served returns the requests so far, in order; at most 10000.
func (s *Server) Served() []Served {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.served)
}

func (s *Server) serve(v Served) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.served) < 10000 {
		s.served = append(s.served, v)
	}
}

// maxRequest bounds a request's body, in bytes.
const maxRequest = 32 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{w: w, api: apiOf(r), key: strings.Join(keys(r), " ")}
	defer func() { s.serve(a.Served()) }()
	if a.api == "" {
		a.refuse(http.StatusNotFound, "not_found_error", "there is nothing at "+r.URL.Path)
		return
	}
	if presented := keys(r); len(presented) == 0 || slices.ContainsFunc(presented, func(k string) bool { return k != s.key }) {
		a.refuse(http.StatusUnauthorized, "authentication_error", "invalid API key")
		return
	}
	var body map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&body); err != nil {
		a.refuse(http.StatusBadRequest, "invalid_request_error", "the body is no JSON object: "+err.Error())
		return
	}
	q := read(a.api, r, body)
	if status := s.fails(q); status != 0 {
		kind := map[int]string{429: "rate_limit_error", 529: "overloaded_error"}[status]
		if kind == "" {
			kind = "api_error"
		}
		a.refuse(status, kind, "the script says so")
		return
	}
	a.answer(q)
}

// fails reports whether a script's request is to fail, with which status.
func (s *Server) fails(q *question) int {
	fields := strings.Fields(q.script.fail)
	if len(fields) == 0 {
		return 0
	}
	status, _ := strconv.Atoi(fields[0])
	times := 1
	if len(fields) > 1 {
		times, _ = strconv.Atoi(fields[1])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed[q.prompt] >= times {
		return 0
	}
	s.failed[q.prompt]++
	return status
}

// apiOf knows the API by the end of the path.
func apiOf(r *http.Request) string {
	p := r.URL.Path
	switch {
	case r.Method != http.MethodPost:
	case strings.HasSuffix(p, "/v1/messages"):
		return "anthropic"
	case strings.HasSuffix(p, "/chat/completions"):
		return "chat"
	case strings.HasSuffix(p, "/responses"):
		return "responses"
	case strings.HasSuffix(p, ":generateContent"), strings.HasSuffix(p, ":streamGenerateContent"):
		return "gemini"
	}
	return ""
}

// keys returns all that a request presents as a key.
func keys(r *http.Request) (all []string) {
	for _, field := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		all = append(all, r.Header.Values(field)...)
	}
	for _, bearer := range r.Header.Values("Authorization") {
		all = append(all, strings.TrimPrefix(bearer, "Bearer "))
	}
	return append(all, r.URL.Query()["key"]...)
}
