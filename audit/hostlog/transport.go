package hostlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
)

// maxAnswer is the maximum size of a witness's answer, in bytes.
const maxAnswer = 16 << 10

// witnessTransport is the transport of one publication's requests to the witnesses. It records their answers: Tessera reports only
// whether there is a quorum, witnessTransport also which witnesses are missing and why.
type witnessTransport struct {
	next http.RoundTripper

	mu      sync.Mutex         // guards answers
	answers map[string]Refusal // by URL; the last answer
}

func newWitnessTransport(next http.RoundTripper) *witnessTransport {
	return &witnessTransport{next: next, answers: map[string]Refusal{}}
}

// client follows no redirects: the policy has the address of each witness.
func (a *witnessTransport) client() *http.Client {
	return &http.Client{Transport: a, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip implements http.RoundTripper. It reads an answer up to maxAnswer. The request is idempotent, so net/http
// retries it if the witness has closed an idle connection (net/http.Transport, Idempotency-Key without a value).
func (a *witnessTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header["Idempotency-Key"] = nil
	resp, err := a.next.RoundTrip(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
		resp.Body.Close()
		if err == nil && len(body) > maxAnswer {
			err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
		}
	}
	answer := Refusal{Err: err}
	if err == nil {
		answer = readAnswer(resp, body)
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	a.mu.Lock()
	a.answers[req.URL.String()] = answer
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// invalidate marks a witness's answer as invalid.
func (a *witnessTransport) invalidate(url string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[url] = Refusal{Err: err}
}

func readAnswer(resp *http.Response, body []byte) Refusal {
	r := Refusal{Status: resp.StatusCode}
	if resp.StatusCode == http.StatusConflict && resp.Header.Get("Content-Type") == "text/x.tlog.size" {
		r.Size, _ = strconv.ParseUint(strings.TrimSpace(string(body)), 10, 64)
	}
	return r
}

// refusals returns the witnesses that have not cosigned the checkpoint of that size, and why. It omits requests that were
// canceled because the quorum was reached.
func (a *witnessTransport) refusals(peers []witness.Peer, signed []byte, size uint64) []Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Refusal
	for _, p := range peers {
		if n, err := note.Open(signed, note.VerifierList(p.Key)); err == nil && len(n.Sigs) > 0 {
			continue
		}
		r, ok := a.answers[p.URL]
		if !ok {
			r.Err = errors.New("no answer in time")
		} else if errors.Is(r.Err, context.Canceled) {
			continue
		}
		r.Name, r.URL = p.Name, p.URL
		if r.Err == nil {
			r.Err = r.reason(size)
		}
		all = append(all, r)
	}
	return all
}

// reason describes an answer (C2SP tlog-witness, add-checkpoint).
func (r Refusal) reason(size uint64) error {
	switch r.Status {
	case http.StatusOK:
		return errors.New("its answer is not signed by the key in the policy")
	case http.StatusBadRequest:
		return errors.New("it rejects the request as malformed (400)")
	case http.StatusForbidden:
		return errors.New("it has another key for this log (403): if the host's key was rotated, give the witness the new keys/host.pub as another --log " +
			"(custody witness serve --log OLD.pub --log NEW.pub)")
	case http.StatusNotFound:
		return errors.New("it does not know this log, or is not a witness (404)")
	case http.StatusConflict:
		if r.Size > size {
			return fmt.Errorf("%w: it has cosigned %d entries, the log has %d (409)", ErrRolledBack, r.Size, size)
		}
		if r.Size > 0 {
			return fmt.Errorf("the size that it has cosigned changes between requests, last %d (409)", r.Size)
		}
		return fmt.Errorf("%w: it has cosigned another tree of %d entries (409)", ErrForked, size)
	case http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: this log does not extend the tree that it has cosigned, or has two histories of a run (422)", ErrForked)
	}
	return fmt.Errorf("it answers with status %d", r.Status)
}
