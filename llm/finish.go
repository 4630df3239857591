package llm

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Finish ends the call and returns the event to record. err is why the exchange is incomplete, or nil. Further calls
// return nil.
func (c *Call) Finish(err error) *audit.LLM {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.over = true
	c.out.close()
	c.outText.end()
	if c.in != nil {
		c.in.close()
		if !c.stream {
			c.inText.end()
		}
	}
	why := c.trouble(err)
	if why == "" && c.success() && !c.stream && !c.answer.running {
		c.answer.ended = true
		c.answer.usage.last = c.answer.usage.in
	}
	if why == "" && c.answer.ended {
		c.answer.tools.allDone()
	}
	reasons := c.reasons(why)
	if n := c.charge(); n > 0 {
		reasons.add(fmt.Sprintf("the budget was charged %d tokens more, one for each byte of text", n))
	}
	failed := why != "" || !c.success() || c.answer.fault != ""
	e := c.event(reasons)
	e.Retry = c.tracker.broken.ended(strings.Join([]string{c.shape.provider, c.req.Host, c.req.Path, e.RequestSHA256}, " "), c.req.Began, failed)
	return e
}

// trouble returns why the response is incomplete, or "".
func (c *Call) trouble(err error) string {
	a := &c.answer
	switch {
	case c.stream && a.ended && a.usage.last:
		return "" // the client need not wait for the rest
	case err != nil:
		return "the exchange broke off: " + string(whole(err.Error(), maxWords))
	case c.in == nil:
		return "there was no answer"
	case c.in.wrong != "":
		return "the answer was not read to its end: " + c.in.wrong
	case !c.success(), c.stream && (a.ended || a.fault != ""):
		return ""
	case c.stream:
		return "the stream ended before the answer did"
	case c.inText.wrong != "":
		return "the answer was not understood: " + c.inText.wrong
	case c.texts == 0 && c.got == 0:
		return "the answer is empty"
	case c.texts == 0 || !c.inText.idle():
		return "the answer was not understood: it is no whole JSON text"
	}
	return ""
}

// reasons returns all reasons why the event is incomplete. why is the result of trouble.
func (c *Call) reasons(why string) (all notes) {
	a := &c.answer
	if why != "" {
		all.add(why)
	}
	switch {
	case !c.success() || !c.billed():
	case a.running && !a.ended:
		all.add("the model continues after this answer; the further tokens are unknown")
	case !a.usage.in && a.usage.output == 0:
		all.add("the provider sent no usage")
	case !a.usage.last:
		all.add("the provider did not report the tokens of the output")
	}
	if a.tools.lost > 0 {
		all.add(fmt.Sprintf("there were %d more tool calls", a.tools.lost))
	}
	if wrong := or(c.out.wrong, c.outText.wrong); wrong != "" {
		all.add("the request was not understood: " + wrong)
	}
	return append(all, a.notes...)
}

// billed reports whether calls of this API cost anything.
func (c *Call) billed() bool { return c.shape.api != apiCount }

// charge charges the budget for tokens that were not reported, at the maximum: one token per byte of text. Otherwise a
// client that disconnects before the report, or does not request it, could evade the budget. It returns the number of
// tokens charged.
func (c *Call) charge() (tokens int64) {
	u := c.answer.usage
	refused := c.answer.fault != "" && c.answer.content == 0 // the provider generated nothing
	if c.tracker.budget == 0 && c.tracker.account == nil || !c.success() || !c.billed() || refused {
		return 0
	}
	total := u.total()
	if !u.in {
		total += c.sent
	}
	if !u.last && c.shape.api != apiEmbeddings && c.shape.api != apiEmbed {
		bytes := c.answer.content
		if c.texts == 0 {
			bytes = c.got // nothing of it was parsed
		}
		total += max(bytes-u.output, 0)
	}
	tokens = max(total-c.paid, 0)
	c.pay(total)
	return tokens
}

// event returns the call's event for the record.
func (c *Call) event(incomplete notes) *audit.LLM {
	a, u := &c.answer, &c.answer.usage
	e := &audit.LLM{
		ID: c.id, Flow: c.req.Flow, Provider: c.shape.provider, API: c.shape.api,
		Host: whole(c.req.Host, maxName), Model: whole(or(a.model, or(c.shape.model, c.asked.Model)), maxName),
		InputTokens: u.input, OutputTokens: u.output, CacheReadTokens: u.read, CacheWriteTokens: u.write, ReasoningTokens: u.thinking,
		Tools: c.asked.offers(), ToolCalls: a.tools.event(),
		StopReason: whole(a.stop, maxName), Status: c.status, Error: whole(a.fault, maxWords), Stream: c.stream,
		Incomplete: strings.Join(incomplete, "; "), DurationNS: time.Since(c.req.Began).Nanoseconds(),
		Spent: c.tracker.spent.Load(), Budget: c.tracker.budget,
	}
	if c.sent > 0 {
		e.RequestSHA256 = hex.EncodeToString(c.sum.Sum(nil))
	}
	if !a.first.IsZero() {
		e.FirstTokenNS = max(a.first.Sub(c.req.Began).Nanoseconds(), 1)
	}
	return e
}

// offers returns the names of the offered tools, or their types if they have no name.
func (q *question) offers() (names []audit.Text) {
	all := append(q.Tools, q.Old...)
	if q.Request != nil {
		all = append(all, q.Request.Tools...)
	}
	add := func(name string) {
		if name != "" && len(names) < maxTools {
			names = append(names, whole(name, maxName))
		}
	}
	for _, o := range all {
		for _, d := range append(o.Declarations, o.Declared...) {
			add(d.Name)
		}
		add(or(or(o.Name, o.Function.Name), or(o.Custom.Name, o.Type)))
	}
	return names
}
