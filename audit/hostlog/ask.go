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

// Ask sends the published checkpoint to the witnesses of a policy, with the request that asks for a cosignature, to find
// out whether any of them has seen a larger checkpoint of this log, or a different log. It publishes nothing. The refusals
// are those of the witnesses that did not cosign: Err is ErrRolledBack or ErrForked if the witness answered that,
// otherwise the error of the request. A refusal is not signed: a lying witness can accuse the log. quorum reports whether
// enough witnesses cosigned. err is an error of the local log.
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
	requests := newWitnessTransport(transport)
	client := requests.client()
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
				requests.invalidate(p.URL, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			cosigned = append(cosigned, lines...)
		})
	}
	asking.Wait()
	return requests.refusals(policy.Peers(), cosigned, now.Size), policy.Satisfied(cosigned), ctx.Err()
}

// askOne returns the signature lines of a witness's answer, nil if it refuses. A witness that has seen a smaller tree
// answers with its size, and askOne then sends a proof that the log extends that tree.
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

// askedWithin is the maximum difference between the time of a cosignature and now. An older cosignature can be a replay
// and does not show what the witness has seen since.
const askedWithin = 5 * time.Minute

func fresh(sig note.Signature, now time.Time) error {
	at, err := cosign.CoSigV1Timestamp(sig)
	if err != nil {
		return err
	}
	if now.Sub(at).Abs() > askedWithin {
		return fmt.Errorf("its cosignature is stale: it is dated %s", at.UTC().Format(time.RFC3339))
	}
	return nil
}

// post sends a request to a witness. It returns the signature lines, or the size of the tree that the witness has seen.
// The client's transport records any other answer.
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
	answer, err := io.ReadAll(resp.Body) // limited by witnessTransport
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
