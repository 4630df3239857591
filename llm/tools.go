package llm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"

	"github.com/custody-project/custody/audit"
)

// Limits of the tool calls in one response.
const (
	maxToolCalls = 256       // further ones are only counted
	maxArgs      = 256 << 10 // stored bytes of the arguments of one tool call, to find the commands in them
	maxAllArgs   = 1 << 20   // and of all
	maxArgText   = 16 << 10  // bytes of the arguments of one tool call in the record
	maxAllText   = 256 << 10 // and of all
	maxName      = 512       // bytes of names and ids
)

// toolCall is a tool call, so far.
type toolCall struct {
	id, name string
	sum      hash.Hash // of the arguments
	size     int64     // bytes of them
	args     []byte    // the stored part
	initial  []byte    // arguments that count if no pieces follow
	ready    bool
}

// callKey distinguishes the tool calls of one response whose pieces arrive interleaved.
type callKey struct{ choice, index int }

// toolCalls are the tool calls of one response, in order.
type toolCalls struct {
	list  []*toolCall
	at    map[callKey]*toolCall // the latest for each key
	kept  int                   // bytes of arguments
	lost  int                   // tool calls over the limit
	ready func(*toolCall)       // called once for each complete tool call
}

// begin adds a tool call; it returns nil over the limit.
func (t *toolCalls) begin(key callKey, id, name string) *toolCall {
	if len(t.list) == maxToolCalls {
		t.lost++
		return nil
	}
	c := &toolCall{id: id, name: name, sum: sha256.New()}
	t.list = append(t.list, c)
	if t.at == nil {
		t.at = map[callKey]*toolCall{}
	}
	t.at[key] = c
	return c
}

// add adds a piece of arguments.
func (t *toolCalls) add(c *toolCall, piece []byte) {
	if c == nil || c.ready {
		return
	}
	c.sum.Write(piece) // never fails
	c.size += int64(len(piece))
	if room := min(maxArgs-len(c.args), maxAllArgs-t.kept); room > 0 {
		piece = piece[:min(len(piece), room)]
		c.args = append(c.args, piece...)
		t.kept += len(piece)
	}
}

// replace sets the arguments to the complete ones that followed the pieces.
func (t *toolCalls) replace(c *toolCall, args []byte) {
	if c == nil || c.ready {
		return
	}
	t.kept -= len(c.args)
	c.args, c.size = c.args[:0], 0
	c.sum.Reset()
	t.add(c, args)
}

// done reports that a tool call's arguments are complete.
func (t *toolCalls) done(c *toolCall) {
	if c != nil && !c.ready {
		c.ready = true
		t.ready(c)
	}
}

// allDone reports that all are complete.
func (t *toolCalls) allDone() {
	for _, c := range t.list {
		t.done(c)
	}
}

// allDoneOf reports that a choice's tool calls are complete.
func (t *toolCalls) allDoneOf(choice int) {
	for key, c := range t.at {
		if key.choice == choice {
			t.done(c)
		}
	}
}

// event returns the tool calls for the record.
func (t *toolCalls) event() []audit.ToolCall {
	var list []audit.ToolCall
	room := maxAllText
	for _, c := range t.list {
		text := safe(c.args, min(maxArgText, room))
		room -= len(text)
		list = append(list, audit.ToolCall{
			ID: whole(c.id, maxName), Name: whole(c.name, maxName), SHA256: hex.EncodeToString(c.sum.Sum(nil)),
			Arguments: audit.Text(text), Truncated: int64(len(text)) < c.size,
		})
	}
	return list
}

// safe returns args, or the longest prefix that fits and ends outside of JSON strings. A cut within a string could leave
// most of a secret value, which could no longer be recognized. Arguments that are not JSON are returned completely or
// not at all.
func safe(args []byte, limit int) []byte {
	if len(args) <= limit && json.Valid(args) {
		return args
	}
	if len(args) == 0 || args[0] != '{' && args[0] != '[' {
		return nil
	}
	end, inside, escaped := 0, false, false
	for i, c := range args[:min(limit, len(args))] {
		switch {
		case escaped:
			escaped = false
		case inside && c == '\\':
			escaped = true
		case c == '"':
			inside = !inside
		}
		if !inside {
			end = i + 1
		}
	}
	return args[:end]
}
