package llmapi

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// question is a parsed request, for any API.
type question struct {
	model  string
	stream bool
	array  bool // a stream as a JSON array: Gemini's, without alt=sse
	usage  bool // to be sent in a stream
	prompt string
	script script
	round  int    // number of previous rounds of tool calls
	tool   string // the first offered
	input  int    // words
}

// script has the instructions of the prompt; see the package comment.
type script struct {
	rounds      [][]string // commands
	say         string
	pad, think  int
	fail        string
	after       int // events; 0: all
	trouble     bool
	first, next time.Duration
	mute        bool
	echo, gzip  bool
}

// parse reads a script.
func parse(prompt string) (s script) {
	for line := range strings.SplitSeq(prompt, "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch n, _ := strconv.Atoi(value); name {
		case "run":
			if len(s.rounds) == 0 {
				s.rounds = append(s.rounds, nil)
			}
			last := len(s.rounds) - 1
			s.rounds[last] = append(s.rounds[last], value)
		case "then":
			s.rounds = append(s.rounds, []string{value})
		case "say":
			s.say = value
		case "pad":
			s.pad = n
		case "think":
			s.think = n
		case "fail":
			s.fail = value
		case "break", "trouble":
			s.after, s.trouble = n, name == "trouble"
		case "wait":
			first, next, _ := strings.Cut(value, " ")
			s.first, _ = time.ParseDuration(first)
			s.next, _ = time.ParseDuration(next)
		case "usage":
			s.mute = value == "off"
		case "echo":
			s.echo = value == "on"
		case "gzip":
			s.gzip = value == "on"
		}
	}
	return s
}

// read reads a request's body.
func read(api string, r *http.Request, body map[string]any) *question {
	q := &question{model: str(body["model"]), stream: body["stream"] == true, usage: true, tool: "bash"}
	said := list(body["messages"])
	switch api {
	case "chat":
		q.usage = !q.stream || object(body["stream_options"])["include_usage"] == true
	case "responses":
		if said = list(body["input"]); said == nil {
			said = []any{map[string]any{"role": "user", "content": body["input"]}}
		}
	case "gemini":
		said = list(body["contents"])
		model, verb, _ := strings.Cut(path.Base(r.URL.Path), ":")
		q.model, q.stream = model, verb == "streamGenerateContent"
		q.array = q.stream && r.URL.Query().Get("alt") != "sse"
	}
	calling := false
	for _, m := range said {
		m := object(m)
		role := str(m["role"])
		if q.prompt == "" && (role == "user" || role == "") {
			q.prompt = text(m["content"]) + text(m["parts"])
		}
		// The model's turns. In responses they are consecutive calls without a role.
		turn := role == "assistant" || role == "model" || str(m["type"]) == "function_call"
		if turn && !calling {
			q.round++
		}
		calling = turn
	}
	for _, part := range []string{"system", "instructions", "systemInstruction"} {
		q.input += Tokens(body[part])
	}
	q.input += Tokens(said)
	if tools := list(body["tools"]); len(tools) > 0 {
		t := object(tools[0])
		for _, name := range []any{t["name"], object(t["function"])["name"], object(first(t["functionDeclarations"]))["name"]} {
			if s := str(name); s != "" {
				q.tool = s
			}
		}
	}
	q.script = parse(q.prompt)
	return q
}

// Tokens counts the words in all strings of a JSON value.
func Tokens(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(strings.Fields(v))
	case []any:
		for _, element := range v {
			n += Tokens(element)
		}
	case map[string]any:
		for _, member := range v {
			n += Tokens(member)
		}
	}
	return n
}

// text returns a message's text, which may be split into parts.
func text(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	var all []string
	for _, part := range list(content) {
		all = append(all, str(object(part)["text"]))
	}
	return strings.Join(all, "\n")
}

// call is a tool call of the model.
type call struct{ id, name, command string }

// reply is the model's turn.
type reply struct {
	words []string // of text
	calls []call
}

// think determines the reply.
func (q *question) think(key string) (r reply) {
	if q.round < len(q.script.rounds) {
		for i, command := range q.script.rounds[q.round] {
			r.calls = append(r.calls, call{fmt.Sprintf("call_%d_%d", q.round+1, i+1), q.tool, command})
		}
		r.words = []string{"I", "run", strconv.Itoa(len(r.calls)), "commands."}
		return r
	}
	r.words = strings.Fields(q.script.say)
	if q.script.echo {
		r.words = append(r.words, "key:", key)
	}
	for i := range q.script.pad {
		r.words = append(r.words, "w"+strconv.Itoa(i))
	}
	if len(r.words) == 0 {
		r.words = []string{"Done."}
	}
	return r
}

func str(v any) string            { s, _ := v.(string); return s }
func list(v any) []any            { l, _ := v.([]any); return l }
func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

func first(v any) any {
	if l := list(v); len(l) > 0 {
		return l[0]
	}
	return nil
}
