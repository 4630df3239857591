package llm

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// anthropicKeep are the members that are needed of messages and of the events of their streams (Anthropic API reference,
// "Messages" and "Streaming messages").
var anthropicKeep = func() keep {
	block := keep{"type": nil, "id": nil, "name": nil, "input": nil}
	return keep{
		"type": nil, "error": nil, "index": nil, "usage": nil, "model": nil, "stop_reason": nil, "completion": nil,
		"message": {"model": nil, "usage": nil, "stop_reason": nil, "content": block},
		"content": block, "content_block": block,
		"delta": {"type": nil, "text": nil, "partial_json": nil, "thinking": nil, "stop_reason": nil},
	}
}()

type anthropicUsage struct {
	Input  *count `json:"input_tokens"` // without cached tokens
	Read   count  `json:"cache_read_input_tokens"`
	Write  count  `json:"cache_creation_input_tokens"`
	Output *count `json:"output_tokens"`
}

type anthropicMessage struct {
	Model   string           `json:"model"`
	Usage   *anthropicUsage  `json:"usage"`
	Stop    string           `json:"stop_reason"`
	Content []anthropicBlock `json:"content"`
}

type anthropicBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// isCall reports whether the block is a tool call: tool_use, server_tool_use, mcp_tool_use.
func (b *anthropicBlock) isCall() bool {
	return b.Type == "tool_use" || b.Type == "server_tool_use" || b.Type == "mcp_tool_use"
}

// anthropic parses a message or one event of its stream.
func (a *answer) anthropic(text []byte) error {
	var m struct {
		Type  string          `json:"type"`
		Error json.RawMessage `json:"error"`
		Index int             `json:"index"`
		anthropicMessage
		Message json.RawMessage `json:"message"`
		Block   anthropicBlock  `json:"content_block"`
		Delta   struct {
			Text     string `json:"text"`
			JSON     string `json:"partial_json"`
			Thinking string `json:"thinking"`
			Stop     string `json:"stop_reason"`
		} `json:"delta"`
		Completion string `json:"completion"`
	}
	err := a.decode(text, &m)
	a.failed(m.Error)
	switch m.Type {
	case "message_start":
		var begun anthropicMessage
		if e := a.decode(m.Message, &begun); e != nil && err == nil {
			err = e
		}
		a.model = or(begun.Model, a.model)
		a.anthropicUsage(begun.Usage, false)
	case "content_block_start":
		a.touch()
		if m.Block.isCall() {
			a.tools.begin(callKey{index: m.Index}, m.Block.ID, m.Block.Name).begins(m.Block.Input)
		}
	case "content_block_delta":
		a.came(len(m.Delta.Text) + len(m.Delta.JSON) + len(m.Delta.Thinking))
		a.tools.add(a.tools.at[callKey{index: m.Index}], []byte(m.Delta.JSON))
	case "content_block_stop":
		a.tools.blockDone(a.tools.at[callKey{index: m.Index}])
	case "message_delta":
		a.stopped(m.Delta.Stop)
		a.anthropicUsage(m.Usage, true)
	case "message_stop":
		a.ended = true
	case "message", "completion":
		a.message(&m.anthropicMessage)
	}
	return err
}

// begins stores the arguments at the start of a tool call in a stream. They count if no pieces follow, as for a tool
// without arguments.
func (c *toolCall) begins(input json.RawMessage) {
	if c != nil && len(input) <= maxArgs {
		c.initial = append([]byte(nil), input...)
	}
}

// blockDone ends the block with a tool call.
func (t *toolCalls) blockDone(c *toolCall) {
	if c != nil && c.size == 0 {
		t.add(c, c.initial)
	}
	t.done(c)
}

// message parses a complete message.
func (a *answer) message(m *anthropicMessage) {
	a.model = or(m.Model, a.model)
	a.stopped(m.Stop)
	for i, b := range m.Content {
		if b.isCall() {
			c := a.tools.begin(callKey{index: i}, b.ID, b.Name)
			a.tools.add(c, b.Input)
			a.tools.done(c)
		}
	}
	a.anthropicUsage(m.Usage, true)
	a.ended = true
}

// anthropicUsage adds a usage report. Reports in a stream are cumulative; the first one has only the start of the
// output.
func (a *answer) anthropicUsage(u *anthropicUsage, last bool) {
	if u == nil {
		return
	}
	n := usage{read: a.sum(u.Read), write: a.sum(u.Write)}
	if u.Input != nil {
		n.input, n.in = a.sum(*u.Input, u.Read, u.Write), true
	}
	if u.Output != nil {
		n.output, n.last = a.sum(*u.Output), last
	}
	a.usage.raise(n)
}

// amazonUsage parses the header fields of Bedrock's responses, for any model.
func (a *answer) amazonUsage(h http.Header) {
	in, errIn := strconv.ParseUint(h.Get("X-Amzn-Bedrock-Input-Token-Count"), 10, 40)
	out, errOut := strconv.ParseUint(h.Get("X-Amzn-Bedrock-Output-Token-Count"), 10, 40)
	if errIn == nil && errOut == nil {
		a.usage.raise(usage{input: int64(in), output: int64(out), in: true, last: true})
	}
}
