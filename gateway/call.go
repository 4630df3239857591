package gateway

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
)

// begin begins a call of a model, if the request is one and its rule looks at requests. A
// call for which no tokens are left is refused.
func (f *flight) begin(r *netpolicy.Rule, u *url.URL) (*llm.Call, *refusal) {
	book := f.x.conn.g.cfg.Calls
	if book == nil || r.HTTP == nil {
		return nil, nil
	}
	call := book.Begin(llm.Request{
		Method: f.q.method, Host: f.x.conn.to.name, Path: u.RequestURI(), Header: f.q.header, Flow: f.ev.Flow, Began: f.began,
	})
	if call == nil {
		return nil, nil
	}
	if err := book.Spent(); err != nil {
		return nil, denied("%v", err)
	}
	f.ev.LLM = call.ID()
	return call, nil
}

// asked shows the call a piece of the request's body, as the guest sent it.
func (f *flight) asked(p []byte) {
	if f.call != nil {
		f.call.Request(p)
	}
}

// answering shows the call the head of the answer, as the guest gets it.
func (f *flight) answering(status int, header http.Header) {
	if f.call != nil {
		f.call.Response(status, header)
	}
}

// answered shows the call a piece of the answer before the guest gets it: so it is known which commands
// the model asked for before any of them is run. With an error the budget is spent and the flow ended.
func (f *flight) answered(p []byte) error {
	if f.call == nil || !f.call.Body(p) {
		return nil
	}
	reason := "the run's token budget is used up (limits.llm_tokens)"
	if err := f.x.conn.g.cfg.Calls.Spent(); err != nil {
		reason = err.Error()
	}
	no := denied("%s", reason)
	f.stop(no)
	f.x.conn.life.kill(reason)
	return no
}

// finishCall records the call right after its request.
func (f *flight) finishCall() error {
	if f.call == nil {
		return nil
	}
	var why error
	if f.ev.Reason != "" {
		why = errors.New(f.ev.Reason)
	}
	ev := f.call.Finish(why)
	if ev == nil {
		return nil
	}
	ctx, cancel := lastWords(f.x.conn.ctx)
	defer cancel()
	_, err := f.x.conn.g.post(ctx, audit.Event{Kind: audit.KindLLM, LLM: ev})
	return err
}
