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

// answer is what is known of a call's answer so far.
type answer struct {
	model, stop, fault string
	usage              usage
	tools              toolCalls
	content            int64     // bytes of content in events
	first              time.Time // when content came first
	ended              bool      // the provider said so
	running            bool      // it goes on at the provider's after the answer
	notes              notes
}

// dialect reads one JSON text of an answer: all of it, an element of it, or an event's data.
type dialect func(a *answer, text []byte) error

// dialectOf returns how an API answers, and what of it matters.
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

// counted reads the answer to a question of what something would cost: nothing was spent.
func (a *answer) counted([]byte) error { return nil }

// refusalKeep is what matters of an answer whose status is no success.
var refusalKeep = keep{"error": nil, "type": nil, "code": nil, "status": nil, "message": nil, "detail": nil}

// refusal reads one. Some servers have no "error" in it, and its members beside each other.
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

// decode reads a text as far as its values have the types that they should have.
func (a *answer) decode(text []byte, into any) error {
	err := json.Unmarshal(text, into)
	if mistyped := (*json.UnmarshalTypeError)(nil); errors.As(err, &mistyped) {
		a.notes.add("part of the answer was not understood")
		return nil
	}
	return err
}

// came notes n bytes of content.
func (a *answer) came(n int) {
	a.content += int64(n)
	a.touch()
}

// touch notes that content came.
func (a *answer) touch() {
	if a.first.IsZero() {
		a.first = time.Now()
	}
}

// sum adds up counts that were reported; one that cannot be is left out, and said.
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

// stopped notes a stop reason; of several, the first counts.
func (a *answer) stopped(reason string) {
	a.stop = or(a.stop, reason)
}

// failed notes an error in the provider's words. raw is what stands under "error": an
// object in the fashion of any provider, or just words.
func (a *answer) failed(raw json.RawMessage) {
	if a.fault == "" && len(raw) > 0 && !bytes.Equal(raw, []byte("null")) && !bytes.Equal(raw, []byte("{}")) {
		a.fault = or(words(raw), "an error without words")
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
	_ = json.Unmarshal(raw, &m) // each is looked at by itself
	var kind []string
	for _, part := range []json.RawMessage{m.Type, m.Code, m.Status} {
		var s string
		if json.Unmarshal(part, &s) == nil && s != "" && (len(kind) == 0 || kind[len(kind)-1] != s) {
			kind = append(kind, s)
		}
	}
	var message string
	_ = json.Unmarshal(m.Message, &message) // none, then
	all := []string{strings.Join(kind, "/"), message}
	if all[0] == "" || all[1] == "" {
		return all[0] + all[1]
	}
	return strings.Join(all, ": ")
}

// notes are reasons, each once.
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

// whole returns s, or describes how long it is where it is longer than a record should hold. It is not cut:
// what is cut in the midst of a secret value would no longer be known for one.
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
