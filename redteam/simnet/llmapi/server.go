// Package llmapi is the LLM API of the simulated internet, for testing policies, demonstrations and tests. It implements
// the wire formats of Anthropic's Messages, OpenAI's Chat Completions and Responses, and Gemini's generateContent,
// complete and streamed. Its responses follow a script in the first message of a user, one instruction per line; other
// lines are ignored:
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
//	echo: on           returns the request's key in the field X-Echo and in the last answer
//	gzip: on           compresses the answer
//
// A token is a word, separated by white space. The input is all strings of the conversation, including roles and ids;
// after the first round the script itself counts as read from a cache.
package llmapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Server is the LLM API. It is an http.Handler and is safe for concurrent use.
type Server struct {
	key string

	mu     sync.Mutex // guards the fields below
	served []Served
	failed map[string]int // by script: requests that were answered with its failure
}

// Served describes one request for a response, and what the response reported.
type Served struct {
	API      string // anthropic, chat, responses or gemini; empty: unknown
	Status   int
	Stream   bool
	Input    int // tokens, including cached ones
	Cached   int
	Output   int // tokens, including reasoning
	Thinking int
	Calls    int    // tool calls
	Sent     bool   // usage was sent before the response ended
	Key      string // the key in the request
}

// New returns a server that accepts only requests with exactly this key: a second, different key is rejected. The key
// can be in the providers' header fields (x-api-key, api-key or x-goog-api-key), a bearer token, or the parameter key.
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
		a.refuse(http.StatusNotFound, "not_found_error", "not found: "+r.URL.Path)
		return
	}
	if presented := keys(r); len(presented) == 0 || slices.ContainsFunc(presented, func(k string) bool { return k != s.key }) {
		a.refuse(http.StatusUnauthorized, "authentication_error", "invalid API key")
		return
	}
	var body map[string]any
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&body); err != nil {
		a.refuse(http.StatusBadRequest, "invalid_request_error", "the body is not a JSON object: "+err.Error())
		return
	}
	q := read(a.api, r, body)
	if status := s.fails(q); status != 0 {
		kind := map[int]string{429: "rate_limit_error", 529: "overloaded_error"}[status]
		if kind == "" {
			kind = "api_error"
		}
		a.refuse(status, kind, "requested by the script")
		return
	}
	a.answer(q)
}

// fails reports whether a script's request must fail, and with which status.
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

// apiOf returns the API by the end of the path.
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

// keys returns all keys in a request.
func keys(r *http.Request) (all []string) {
	for _, field := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key"} {
		all = append(all, r.Header.Values(field)...)
	}
	for _, bearer := range r.Header.Values("Authorization") {
		all = append(all, strings.TrimPrefix(bearer, "Bearer "))
	}
	return append(all, r.URL.Query()["key"]...)
}
