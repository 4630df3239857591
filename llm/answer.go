package llm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// answer is the state of a call's response.
type answer struct {
	model, stop, fault string
	usage              usage
	tools              toolCalls
	content            int64     // bytes of content in events
	first              time.Time // when the first content arrived
	ended              bool      // the provider has reported the end
	running            bool      // the model continues at the provider after this response
	notes              notes
}

// dialect parses one JSON text of a response: all of it, an element of it, or an event's data.
type dialect func(a *answer, text []byte) error

// dialectOf returns the parser of an API's responses, and the members that it needs.
func dialectOf(api string) (dialect, keep) {
	switch api {
	case apiMessages, apiComplete:
		return (*answer).anthropic, anthropicKeep
	case apiChat, apiCompletions, apiEmbeddings:
		return (*answer).chat, chatKeep
	case apiResponses:
		return (*answer).responses, responsesKeep
	case apiCount:
		return (*answer).counted, keep{}
	}
	return (*answer).gemini, geminiKeep
}

// counted parses the response to a request that counts tokens, which costs nothing.
func (a *answer) counted([]byte) error { return nil }

// refusalKeep are the members that are needed of an error response.
var refusalKeep = keep{"error": nil, "type": nil, "code": nil, "status": nil, "message": nil, "detail": nil}

// refusal parses an error response. Some servers have the error's members at the top level, without "error".
func (a *answer) refusal(text []byte) error {
	var m struct {
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	err := a.decode(text, &m)
	a.failed(m.Error)
	a.failed(m.Detail)
	if err == nil {
		a.failed(text)
	}
	return err
}

// decode parses a text, and ignores values with unexpected types.
func (a *answer) decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
		a.notes.add("part of the answer was not understood")
		return nil
	}
	return err
}

// came counts n bytes of content.
func (a *answer) came(n int) {
	a.content += int64(n)
	a.touch()
}

// touch sets the time of the first content.
func (a *answer) touch() {
	if a.first.IsZero() {
		a.first = time.Now()
	}
}

// sum returns the sum of reported counts. It ignores an invalid one, and adds a note.
func (a *answer) sum(counts ...count) (total int64) {
	for _, c := range counts {
		if c == incredible {
			a.notes.add("the provider sent a figure that cannot be")
			continue
		}
		total += int64(c)
	}
	return total
}

// stopped sets the stop reason; the first one counts.
func (a *answer) stopped(reason string) {
	a.stop = or(a.stop, reason)
}

// failed sets the provider's error. raw is the value of "error": an object in the format of any provider, or a string.
func (a *answer) failed(raw json.RawMessage) {
	if a.fault == "" && len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && !bytes.Equal(raw, []byte("{}")) {
		a.fault = or(words(raw), "an error without a message")
	}
}

func words(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var m struct {
		Type    json.RawMessage `json:"type"`
		Code    json.RawMessage `json:"code"`
		Status  json.RawMessage `json:"status"`
		Message json.RawMessage `json:"message"`
	}
	_ = json.Unmarshal(raw, &m) // each member is parsed separately
	var kind []string
	for _, part := range []json.RawMessage{m.Type, m.Code, m.Status} {
		var s string
		if json.Unmarshal(part, &s) == nil && s != "" && (len(kind) == 0 || kind[len(kind)-1] != s) {
			kind = append(kind, s)
		}
	}
	var message string
	_ = json.Unmarshal(m.Message, &message) // then there is none
	all := []string{strings.Join(kind, "/"), message}
	if all[0] == "" || all[1] == "" {
		return all[0] + all[1]
	}
	return strings.Join(all, ": ")
}

// notes are distinct reasons.
type notes []string

const maxNotes = 8

func (n *notes) add(note string) {
	for _, have := range *n {
		if have == note {
			return
		}
	}
	if len(*n) < maxNotes {
		*n = append(*n, note)
	}
}

// whole returns s, or its length if it is too long for a record. It does not cut s: a part of a secret value could no
// longer be recognized.
func whole(s string, limit int) audit.Text {
	if len(s) > limit {
		return audit.Text(fmt.Sprintf("(%d bytes, withheld)", len(s)))
	}
	return audit.Text(s)
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
