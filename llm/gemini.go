package llm

import "encoding/json"

// geminiKeep are the members that are needed of Gemini's responses (Gemini API reference, "GenerateContentResponse" and
// "UsageMetadata"). A stream is a sequence of such responses, as events or as a JSON array.
var geminiKeep = func() keep {
	k := keep{
		"error": nil, "modelVersion": nil, "usageMetadata": nil,
		"promptFeedback": {"blockReason": nil},
		"candidates":     {"index": nil, "finishReason": nil, "content": {"parts": {"text": nil, "functionCall": nil}}},
	}
	all := keep{"response": k} // of the API of Google's command line tools
	for name, sub := range k {
		all[name] = sub
	}
	return all
}()

type geminiAnswer struct {
	Error    json.RawMessage `json:"error"`
	Model    string          `json:"modelVersion"`
	Usage    *geminiUsage    `json:"usageMetadata"`
	Feedback struct {
		Block string `json:"blockReason"`
	} `json:"promptFeedback"`
	Candidates []struct {
		Index   int    `json:"index"`
		Finish  string `json:"finishReason"`
		Content struct {
			Parts []struct {
				Text string `json:"text"`
				Call *struct {
					ID      string          `json:"id"`
					Name    string          `json:"name"`
					Args    json.RawMessage `json:"args"`
					Partial json.RawMessage `json:"partialArgs"`
				} `json:"functionCall"`
			} `json:"parts"`
		} `json:"content"`
	} `json:"candidates"`
}

type geminiUsage struct {
	Prompt     *count `json:"promptTokenCount"` // including cached tokens
	ToolUse    count  `json:"toolUsePromptTokenCount"`
	Cached     count  `json:"cachedContentTokenCount"`
	Candidates count  `json:"candidatesTokenCount"`
	Thoughts   count  `json:"thoughtsTokenCount"` // not included in the candidates' tokens
}

// gemini parses a response, or a piece of one in the same format.
func (a *answer) gemini(text []byte) error {
	var m struct {
		geminiAnswer
		Response *geminiAnswer `json:"response"`
	}
	err := a.decode(text, &m)
	a.geminiAnswer(&m.geminiAnswer)
	if m.Response != nil {
		a.geminiAnswer(m.Response)
	}
	return err
}

func (a *answer) geminiAnswer(m *geminiAnswer) {
	a.failed(m.Error)
	a.model = or(m.Model, a.model)
	for _, c := range m.Candidates {
		for _, p := range c.Content.Parts {
			if p.Text != "" {
				a.came(len(p.Text))
			}
			if p.Call == nil {
				continue
			}
			a.came(len(p.Call.Args) + len(p.Call.Partial))
			if len(p.Call.Partial) > 0 {
				a.notes.add("a tool call's arguments came in parts, which are not put together")
			}
			call := a.tools.begin(callKey{choice: c.Index, index: len(a.tools.list)}, p.Call.ID, p.Call.Name)
			a.tools.add(call, p.Call.Args)
			a.tools.done(call)
		}
		a.stopped(c.Finish)
		a.ended = a.ended || c.Finish != ""
	}
	a.stopped(m.Feedback.Block)
	a.ended = a.ended || m.Feedback.Block != ""
	if u := m.Usage; u != nil {
		n := usage{read: a.sum(u.Cached), thinking: a.sum(u.Thoughts), output: a.sum(u.Candidates, u.Thoughts)}
		if u.Prompt != nil {
			n.input, n.in = a.sum(*u.Prompt, u.ToolUse), true
		}
		a.usage.raise(n)
		// Reports are cumulative; the one with the end is the last.
		a.usage.last = a.ended
	}
}
