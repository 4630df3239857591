package gateway

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
)

// begin begins an LLM API call, if the request is one and its rule inspects requests. It denies the call if the run's
// tokens, or those of its tenant, are used up.
func (f *flight) begin(r *netpolicy.Rule, u *url.URL) (*llm.Call, *refusal) {
	tracker := f.x.conn.g.cfg.Calls
	if tracker == nil || r.HTTP == nil {
		return nil, nil
	}
	call := tracker.Begin(llm.Request{
		Method: f.q.method, Host: f.x.conn.to.name, Path: u.RequestURI(), Header: f.q.header, Flow: f.ev.Flow, Began: f.began,
	})
	if call == nil {
		return nil, nil
	}
	if err := tracker.Admit(f.x.conn.ctx); err != nil {
		return nil, denied("%v", err)
	}
	f.ev.LLM = call.ID()
	return call, nil
}

// asked passes a piece of the request's body to the call, as the guest sent it.
func (f *flight) asked(p []byte) {
	if f.call != nil {
		f.call.Request(p)
	}
}

// answering passes the head of the response to the call, as the guest receives it.
func (f *flight) answering(status int, header http.Header) {
	if f.call != nil {
		f.call.Response(status, header)
	}
}

// answered passes a piece of the response to the call before the guest receives it, so that the commands in it are known
// before any of them is run. It returns an error if the budget is used up and the flow has ended.
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

// finishCall records the call after its request.
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
