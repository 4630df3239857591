package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/llm"
	"github.com/custody-project/custody/netpolicy"
)

// flight is one request and its response.
//
//	vetted -> decided -> scope of its head -> credential added -> sent -> response -> recorded
//	   \________\____________\___________________\__________________/
//	              refused: no more of it is sent, and the reason is recorded
type flight struct {
	x        *exchanger
	w        http.ResponseWriter
	q        *ask
	ev       *audit.HTTP
	began    time.Time
	ctx      context.Context
	stop     context.CancelCauseFunc // with a *refusal as the gateway's reason
	scope    scope
	call     *llm.Call // nil: not an LLM API call
	mask     mask
	headSent bool // the response's head was sent
}

func (x *exchanger) newFlight(ctx context.Context, w http.ResponseWriter, q *ask) *flight {
	f := &flight{x: x, w: w, q: q, ev: x.event(q), began: time.Now()}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	f.scope = scope{of: x.conn.g.cfg.Credentials, f: f, asked: map[string]*refusal{}}
	return f
}

// carry registers a flight for Withdraw until land is called.
func (f *flight) carry(secret string) {
	g := f.x.conn.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.carrying[f] = secret
}

func (f *flight) land() {
	g := f.x.conn.g
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.carrying, f)
}

// Withdraw ends every open request that carries a secret as its credential, and returns their number. It is called after
// the secret was revoked: a request without an end would otherwise continue with it.
func (g *Gateway) Withdraw(secret, reason string) (ended int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for f, carried := range g.carrying {
		if carried == secret {
			f.stop(denied("the credential %s was withdrawn: %s", secret, reason))
			ended++
		}
	}
	return ended
}

// carryOut sends a request that rule r allows, and passes its response on.
func (f *flight) carryOut(r *netpolicy.Rule, u *url.URL) error {
	defer f.land()
	if r.Redacts() {
		f.mask.red = f.x.conn.g.cfg.Redactor
	}
	out, no := f.outgoing(r, u)
	if no != nil {
		return f.answer(no)
	}
	resp, err := f.x.peer.RoundTrip(out)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusSwitchingProtocols {
			err = errSwitched
		} else {
			f.ev.Status = resp.StatusCode
			err = f.relay(resp)
		}
	}
	if err == nil {
		_, err = f.finish()
		return err
	}
	return f.failed(err)
}

// failed reports why an exchange is incomplete: to the guest, if it is still connected and has no response yet, and in
// the record.
func (f *flight) failed(err error) error {
	var no *refusal
	stopped := errors.As(context.Cause(f.ctx), &no)
	if !stopped && !f.x.conn.life.wasEnded() {
		no = f.q.body.flaw()
	}
	if no == nil && f.headSent && errors.Is(err, errEchoed) {
		no = explain(err, f.x.conn.to.name)
	}
	if f.headSent || f.ctx.Err() != nil && !stopped { // the guest gave up, or the policy changed: there is no receiver for a response
		f.broken(no)
		_, e := f.finish()
		return errors.Join(err, e)
	}
	if no == nil {
		no = explain(err, f.x.conn.to.name)
	}
	return f.answer(no)
}

// answer sends the guest the reason why the request was denied or incomplete.
func (f *flight) answer(no *refusal) error {
	f.ev.Status, f.ev.Reason = no.status, no.reason
	if !no.beyond() {
		f.ev.Verdict = audit.Deny
	}
	f.closing()
	seq, err := f.finish()
	if err != nil {
		return err
	}
	return f.x.reply(f.w, no, f.ev.Rule, seq)
}

// closing makes an HTTP/1 response that precedes the request's end the last one of the connection, with "Connection:
// close". Otherwise the guest would send its next request within the rest of this one, or into a closed connection.
func (f *flight) closing() {
	if a, ok := f.w.(*answer); ok && !f.q.body.ended() {
		a.last = true
	}
}

// broken records why an exchange is incomplete; no is the gateway's reason for ending it.
func (f *flight) broken(no *refusal) {
	c := f.x.conn
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	f.ev.Reason = "the exchange is incomplete"
	switch {
	case no != nil:
		f.ev.Reason, f.ev.Verdict = no.reason, audit.Deny
	case c.life.ended != "":
		f.ev.Reason = c.life.ended
	}
	if c.life.revoked != nil {
		f.ev.Verdict = audit.Deny
	}
}

// finish records a request that was sent. If that fails the connection ends.
func (f *flight) finish() (uint64, error) {
	if no := f.q.body.flaw(); no != nil && f.ev.Reason == "" { // also after a complete response: the host did not receive a complete request
		f.ev.Verdict, f.ev.Reason = audit.Deny, no.reason
	}
	f.ev.DurationNS, f.ev.BytesOut, f.ev.Redacted = int64(time.Since(f.began)), f.q.body.sent(), f.mask.count
	ctx, cancel := lastWords(f.x.conn.ctx)
	defer cancel()
	seq, err := f.x.conn.g.post(ctx, audit.Event{Kind: audit.KindHTTP, HTTP: f.ev})
	if err = errors.Join(err, f.finishCall()); err != nil {
		f.x.conn.life.kill("a request could not be recorded")
	}
	return seq, err
}

// outgoing returns the request to send, made of the checked parts.
func (f *flight) outgoing(r *netpolicy.Rule, u *url.URL) (*http.Request, *refusal) {
	q := f.q
	header := endToEnd(q.header)
	if _, ok := header["User-Agent"]; !ok {
		header["User-Agent"] = []string{""} // otherwise the transport adds its own
	}
	if q.trailer {
		header["Te"] = []string{"trailers"}
	}
	f.mask.ask(header)
	call, no := f.begin(r, u)
	if no == nil {
		no = f.inject(r, header, u)
	}
	if no != nil {
		return nil, no
	}
	f.call = call
	out := &http.Request{Method: q.method, URL: u, Host: f.x.authority, Header: header, ContentLength: q.length}
	if q.length != 0 {
		q.body.take()
		out.Body = f.outward(q.body)
	}
	return f.announced(out), nil
}

// relay passes a response on as it arrives.
func (f *flight) relay(resp *http.Response) error {
	body, no := f.mask.body(resp, f.q.method)
	if no != nil {
		return no
	}
	header := f.w.Header()
	for name, values := range endToEnd(resp.Header) {
		header[name] = values
	}
	delete(header, "Alt-Svc") // it names ports and protocols that the gateway does not support
	f.mask.header(header)
	f.length(header, resp)
	if _, ok := header["Content-Type"]; !ok {
		header["Content-Type"] = nil // otherwise HTTP/2 guesses one
	}
	f.answering(resp.StatusCode, header)
	f.headSent = true
	f.closing()
	f.w.WriteHeader(resp.StatusCode)
	if f.q.method == http.MethodHead {
		return nil
	}
	flush := http.NewResponseController(f.w)
	if err := flush.Flush(); err != nil {
		return err
	}
	if err := f.copy(body, flush); err != nil {
		return err
	}
	if f.q.trailer {
		f.mask.header(resp.Trailer)
		for name, values := range resp.Trailer {
			header[http.TrailerPrefix+name] = values
		}
	}
	return nil
}

// length sets Content-Length to the parsed value, unless masking may change the body's length.
func (f *flight) length(header http.Header, resp *http.Response) {
	delete(header, "Content-Length")
	n, empty := resp.ContentLength, resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if n < 0 || n == 0 && empty || f.mask.stream != nil && !bodiless(f.q.method, resp) {
		return
	}
	header.Set("Content-Length", strconv.FormatInt(n, 10))
}

// copy passes data on immediately, so that events arrive as they are sent.
func (f *flight) copy(r io.Reader, flush *http.ResponseController) error {
	buffer := f.x.conn.g.buffers.Get().(*[]byte)
	// After an error the buffer is not reused: the HTTP/2 library may still be sending it.
	for {
		n, err := r.Read(*buffer)
		if n > 0 {
			if err := f.pass(f.mask.piece((*buffer)[:n]), flush); err != nil {
				return err
			}
		}
		if err == io.EOF {
			if err = f.pass(f.mask.rest(), flush); err == nil {
				f.x.conn.g.buffers.Put(buffer)
			}
			return err
		}
		if err != nil {
			return err
		}
	}
}

// pass writes a piece of the response to the guest.
func (f *flight) pass(p []byte, flush *http.ResponseController) error {
	if len(p) == 0 {
		return nil
	}
	if err := f.answered(p); err != nil {
		return err
	}
	if _, err := f.w.Write(p); err != nil {
		return err
	}
	f.ev.BytesIn += int64(len(p))
	return flush.Flush()
}
