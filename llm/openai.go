package llm

import (
	"encoding/json"
	"strings"
)

// chatKeep are the members that are needed of chat completions, their chunks, completions and embeddings (OpenAI API
// reference, "Chat Completions", "Chat Completions streaming", "Completions", "Embeddings").
var chatKeep = func() keep {
	message := keep{"content": nil, "refusal": nil, "reasoning": nil, "reasoning_content": nil, "tool_calls": nil, "function_call": nil}
	return keep{
		"model": nil, "usage": nil, "error": nil, "x_groq": nil,
		"choices": {"index": nil, "finish_reason": nil, "text": nil, "error": nil, "message": message, "delta": message},
	}
}()

type openaiUsage struct {
	Prompt        *count        `json:"prompt_tokens"` // including cached tokens
	Completion    count         `json:"completion_tokens"`
	PromptDetails *openaiDetail `json:"prompt_tokens_details"`
	OutputDetails *openaiDetail `json:"completion_tokens_details"`
	CacheHit      count         `json:"prompt_cache_hit_tokens"` // DeepSeek's
	Input         *count        `json:"input_tokens"`            // in responses
	Output        count         `json:"output_tokens"`
	InputOf       *openaiDetail `json:"input_tokens_details"`
	OutputOf      *openaiDetail `json:"output_tokens_details"`
	Total         count         `json:"total_tokens"`
}

type openaiDetail struct {
	Cached    count `json:"cached_tokens"`
	Written   count `json:"cache_write_tokens"`
	Reasoning count `json:"reasoning_tokens"`
}

// openaiUsage adds a usage report. If the total is more than input and output, the output does not include reasoning
// tokens (in the OpenAI-compatible APIs of xAI and Gemini).
func (a *answer) openaiUsage(u *openaiUsage) {
	if u == nil {
		return
	}
	in := u.Prompt
	if in == nil {
		in = u.Input
	}
	out := u.Completion
	if out == 0 {
		out = u.Output
	}
	n := usage{output: a.sum(out), read: a.sum(u.CacheHit)}
	for _, d := range []*openaiDetail{u.PromptDetails, u.InputOf, u.OutputDetails, u.OutputOf} {
		if d != nil {
			n.raise(usage{read: a.sum(d.Cached), write: a.sum(d.Written), thinking: a.sum(d.Reasoning)})
		}
	}
	if in != nil {
		n.input, n.in, n.last = a.sum(*in), true, true
		n.output = max(n.output, a.sum(u.Total)-n.input)
	}
	a.usage.raise(n)
}

type chatMessage struct {
	Content   json.RawMessage `json:"content"`
	Refusal   string          `json:"refusal"`
	Reasoning string          `json:"reasoning"`
	Thoughts  string          `json:"reasoning_content"`
	Calls     []chatCall      `json:"tool_calls"`
	Function  *chatFunction   `json:"function_call"` // deprecated
}

type chatCall struct {
	Index    *int          `json:"index"`
	ID       string        `json:"id"`
	Function *chatFunction `json:"function"`
	Custom   *chatFunction `json:"custom"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Input     string `json:"input"` // of a custom tool
}

// chat parses a chat completion, or a chunk of one; also completions and embeddings.
func (a *answer) chat(text []byte) error {
	var m struct {
		Model   string          `json:"model"`
		Error   json.RawMessage `json:"error"`
		Usage   *openaiUsage    `json:"usage"`
		Choices []struct {
			Index   int             `json:"index"`
			Text    string          `json:"text"`
			Finish  string          `json:"finish_reason"`
			Error   json.RawMessage `json:"error"` // OpenRouter's
			Message *chatMessage    `json:"message"`
			Delta   *chatMessage    `json:"delta"`
		} `json:"choices"`
		Groq struct {
			Usage *openaiUsage `json:"usage"`
		} `json:"x_groq"`
	}
	err := a.decode(text, &m)
	a.model = or(m.Model, a.model)
	a.failed(m.Error)
	for _, c := range m.Choices {
		a.failed(c.Error)
		if c.Text != "" {
			a.came(len(c.Text))
		}
		a.chatMessage(c.Index, c.Message, true)
		a.chatMessage(c.Index, c.Delta, false)
		a.stopped(c.Finish)
		if c.Finish != "" {
			a.ended = true
			a.tools.allDoneOf(c.Index)
		}
	}
	a.openaiUsage(m.Usage)
	a.openaiUsage(m.Groq.Usage)
	return err
}

// chatMessage parses a message, or the new part of one.
func (a *answer) chatMessage(choice int, m *chatMessage, whole bool) {
	if m == nil {
		return
	}
	if n := len(m.Refusal) + len(m.Reasoning) + len(m.Thoughts); n > 0 {
		a.came(n)
	}
	if n := len(m.Content) - len(`""`); n > 0 && string(m.Content) != "null" {
		a.came(n)
	}
	for i, c := range m.Calls {
		f := c.Function
		if f == nil {
			f = c.Custom
		}
		if f == nil {
			f = &chatFunction{}
		}
		at := i
		if c.Index != nil && !whole {
			at = *c.Index
		}
		a.chatCall(callKey{choice, at}, c.ID, f)
	}
	if m.Function != nil {
		a.chatCall(callKey{choice, -1}, "", m.Function)
	}
}

// chatCall parses a piece of a tool call. Another id begins another tool call, even with the same index: not all servers
// count.
func (a *answer) chatCall(key callKey, id string, f *chatFunction) {
	c := a.tools.at[key]
	switch {
	case c == nil, id != "" && c.id != "" && id != c.id:
		a.tools.done(c)
		c = a.tools.begin(key, id, f.Name)
	case c.id == "":
		c.id = id
	}
	if c != nil {
		c.name = or(c.name, f.Name)
	}
	a.came(len(f.Arguments) + len(f.Input))
	a.tools.add(c, []byte(f.Arguments+f.Input))
}

// responsesKeep are the members that are needed of responses and the events of their streams (OpenAI API reference,
// "Responses" and "Streaming events").
var responsesKeep = func() keep {
	item := keep{"type": nil, "id": nil, "call_id": nil, "name": nil, "arguments": nil, "input": nil, "action": nil}
	response := keep{
		"object": nil, "status": nil, "model": nil, "usage": nil, "error": nil, "incomplete_details": nil, "output": item,
	}
	all := keep{
		"type": nil, "code": nil, "message": nil, "delta": nil, "output_index": nil,
		"arguments": nil, "input": nil, "item": item, "response": response,
	}
	for k, v := range response {
		all[k] = v
	}
	return all
}()

type response struct {
	Object     string          `json:"object"`
	Status     string          `json:"status"`
	Model      string          `json:"model"`
	Usage      *openaiUsage    `json:"usage"`
	Error      json.RawMessage `json:"error"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Output []responseItem `json:"output"`
}

type responseItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Input     string          `json:"input"`  // of a custom tool
	Action    json.RawMessage `json:"action"` // of a shell, a search, a computer
}

// isCall reports whether the item is a tool call: function_call, custom_tool_call, local_shell_call, mcp_call, ...
func (i *responseItem) isCall() bool { return strings.HasSuffix(i.Type, "_call") }

// args returns the unchanged arguments.
func (i *responseItem) args() []byte {
	if s := i.Arguments + i.Input; s != "" {
		return []byte(s)
	}
	return i.Action
}

// responses parses a response, or one event of its stream.
func (a *answer) responses(text []byte) error {
	var m struct {
		response
		Type     string          `json:"type"`
		Index    int             `json:"output_index"`
		Delta    json.RawMessage `json:"delta"`
		Args     string          `json:"arguments"`
		Input    string          `json:"input"`
		Item     responseItem    `json:"item"`
		Response *response       `json:"response"`
	}
	err := a.decode(text, &m)
	key := callKey{index: m.Index}
	switch {
	case m.Type == "error":
		a.failed(m.Error)
		if a.fault == "" {
			a.failed(text) // the error's message is in the event itself
		}
	case m.Type == "" || m.Object != "":
		a.response(&m.response)
	case m.Response != nil:
		a.response(m.Response)
	case m.Type == "response.output_item.added":
		a.item(key, &m.Item, false)
	case m.Type == "response.output_item.done":
		a.item(key, &m.Item, true)
	case strings.HasSuffix(m.Type, ".delta"):
		a.responseDelta(key, m.Type, m.Delta)
	case m.Type == "response.function_call_arguments.done", m.Type == "response.custom_tool_call_input.done", m.Type == "response.mcp_call_arguments.done":
		if c := a.tools.at[key]; c != nil && m.Args+m.Input != "" {
			a.tools.replace(c, []byte(m.Args+m.Input))
		}
	}
	return err
}

// responseDelta parses new text or arguments.
func (a *answer) responseDelta(key callKey, kind string, raw json.RawMessage) {
	var piece string
	if json.Unmarshal(raw, &piece) != nil {
		return // not text
	}
	a.came(len(piece))
	switch kind {
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta", "response.mcp_call_arguments.delta":
		a.tools.add(a.tools.at[key], []byte(piece))
	}
}

// item parses an output item that has begun or is complete.
func (a *answer) item(key callKey, i *responseItem, whole bool) {
	if !i.isCall() {
		return
	}
	a.touch()
	c := a.tools.at[key]
	if c == nil {
		name := or(i.Name, strings.TrimSuffix(i.Type, "_call"))
		c = a.tools.begin(key, or(i.CallID, i.ID), name)
	}
	if args := i.args(); len(args) > 0 {
		a.tools.replace(c, args)
	}
	if whole {
		a.tools.done(c)
	}
}

// response parses a response's current state: at the start of the stream, or at its end.
func (a *answer) response(r *response) {
	a.model = or(r.Model, a.model)
	a.failed(r.Error)
	for i := range r.Output {
		a.item(callKey{index: i}, &r.Output[i], true)
	}
	a.openaiUsage(r.Usage)
	switch r.Status {
	case "completed", "failed", "incomplete", "cancelled":
		a.stopped(or(r.Incomplete.Reason, r.Status))
		a.ended = true
	case "queued", "in_progress":
		a.running = true
	}
}
