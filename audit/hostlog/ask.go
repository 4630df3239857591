package hostlog

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/witness"
)

// askTimeout is how long one witness has for its answer.
const askTimeout = 10 * time.Second

// Ask sends the published checkpoint to the witnesses of a policy, as if to have it cosigned, and so learns whether any
// of them has seen a larger checkpoint of this log, or a different log. Nothing is published. The refusals are those of
// the witnesses that did not cosign it: their Err is ErrRolledBack or ErrForked if the witness answered that, else why
// it could not be asked. A refusal is not signed: a witness that lies can accuse the log. quorum reports whether enough
// witnesses cosigned. The error is that of the log here.
func (r *Reader) Ask(ctx context.Context, policy *witness.Policy, transport http.RoundTripper) (refusals []Refusal, quorum bool, err error) {
	now, err := r.checkpoint()
	if err != nil {
		return nil, false, err
	}
	text, _, ok := bytes.Cut(now.Note, []byte("\n\n"))
	if !ok {
		return nil, false, ErrForged
	}
	head := append(slices.Clone(text), "\n\n"...)
	signed := slices.Clone(head)
	for line := range strings.Lines(string(now.Note[len(head):])) { // earlier cosignatures do not count
		if n, err := note.Open(append(slices.Clone(head), line...), r.kept.keys.list); err == nil && len(n.Sigs) > 0 {
			signed = append(signed, line...)
		}
	}
	asked := newAsked(transport)
	client := asked.client()
	cosigned := slices.Clone(signed)
	var mu sync.Mutex // guards cosigned
	var asking sync.WaitGroup
	for _, p := range policy.Peers() {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			lines := r.askOne(ctx, client, p, now, signed)
			n, err := note.Open(slices.Concat(signed, lines), note.VerifierList(p.Key))
			if err != nil || len(n.Sigs) == 0 {
				return
			}
			if err := fresh(n.Sigs[0], time.Now()); err != nil {
				asked.spoil(p.URL, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			cosigned = append(cosigned, lines...)
		})
	}
	asking.Wait()
	return asked.refusals(policy.Peers(), cosigned, now.Size), policy.Satisfied(cosigned), ctx.Err()
}

// askOne returns the signature lines of a witness's answer, nil if it refuses. One that has seen less than this log
// answers with the size, and is sent a proof that the log grew from there.
func (r *Reader) askOne(ctx context.Context, client *http.Client, p witness.Peer, now Checkpoint, signed []byte) []byte {
	old := now.Size
	for range 2 {
		path, err := r.Consistency(ctx, old, now.Size)
		if err != nil {
			return nil
		}
		var body bytes.Buffer
		fmt.Fprintf(&body, "old %d\n", old)
		for _, h := range path {
			body.WriteString(base64.StdEncoding.EncodeToString(h[:]) + "\n")
		}
		body.WriteByte('\n')
		body.Write(signed)
		lines, size, err := post(ctx, client, p.URL, body.Bytes())
		if err != nil || lines != nil {
			return lines
		}
		if size == nil || *size >= old {
			return nil
		}
		old = *size
	}
	return nil
}

// askedWithin is how far the time of a cosignature may be from now: an older one could have been kept, and say nothing
// of what the witness has seen since.
const askedWithin = 5 * time.Minute

func fresh(sig note.Signature, now time.Time) error {
	at, err := cosign.CoSigV1Timestamp(sig)
	if err != nil {
		return err
	}
	if now.Sub(at).Abs() > askedWithin {
		return fmt.Errorf("its cosignature is of %s, not of now", at.UTC().Format(time.RFC3339))
	}
	return nil
}

// post sends a request to a witness. It returns the signature lines, or the size of the tree that the witness has seen
// instead. What else it answers is remembered by the client's transport.
func post(ctx context.Context, client *http.Client, to string, body []byte) (lines []byte, size *uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body) // asked has bounded it
	switch {
	case err != nil:
		return nil, nil, err
	case resp.StatusCode == http.StatusOK:
		return answer, nil, nil
	case resp.StatusCode == http.StatusConflict && resp.Header.Get("Content-Type") == "text/x.tlog.size":
		n := readAnswer(resp, answer).Size
		return nil, &n, nil
	}
	return nil, nil, nil
}
