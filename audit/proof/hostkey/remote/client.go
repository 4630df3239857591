package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/sealer"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Caller makes calls of a Server: a *privsep.Conn, or what makes another connection when one has ended.
type Caller interface {
	Call(ctx context.Context, name string, args, result any, files ...*os.File) ([]*os.File, error)
}

// Client has statements signed by a Server. It is safe for concurrent use.
type Client struct {
	server Caller

	mu     sync.Mutex // guards signed
	signed uint64     // size of the checkpoint that was signed last, as far as this process knows
}

// NewClient returns the Client of a Server.
func NewClient(server Caller) *Client { return &Client{server: server} }

// Key returns the host's current key. Its signer does not sign after a rotation.
func (c *Client) Key(ctx context.Context) (hostkey.Key, error) {
	var a publicAnswer
	if _, err := c.server.Call(ctx, callPublic, none{}, &a); err != nil {
		return hostkey.Key{}, fmt.Errorf("signing key: %w", err)
	}
	key := hostkey.Key{Public: a.Public}
	v, err := key.Verifier()
	if err != nil {
		return hostkey.Key{}, fmt.Errorf("signing key: %w", err)
	}
	key.Signer = signer{client: c, name: v.Name(), hash: v.KeyHash()}
	return key, nil
}

// signer signs with the key that has this name and hash.
type signer struct {
	client   *Client
	name     string
	hash     uint32
	manifest []byte // that is shown along
}

var _ hostkey.Doubtful = signer{}

// Name implements note.Signer.
func (s signer) Name() string { return s.name }

// KeyHash implements note.Signer.
func (s signer) KeyHash() uint32 { return s.hash }

// With implements hostkey.Doubtful.
func (s signer) With(manifest []byte) note.Signer {
	s.manifest = manifest
	return s
}

// Sign implements note.Signer.
func (s signer) Sign(text []byte) ([]byte, error) {
	a, err := s.call(signCall{Text: string(text)})
	if err == nil && a.Behind {
		err = errors.New("the host's log has entries, and there is no proof that it was extended")
	}
	return a.Signature, err
}

// SignCheckpoint signs a checkpoint with a proof that the log extends the one that was signed last (hostlog.Prover). Another process may have had a checkpoint signed meanwhile.
func (s signer) SignCheckpoint(text []byte, extends func(from uint64) ([]merkle.Hash, error)) ([]byte, error) {
	for range 5 {
		from := s.client.known()
		proof, err := extends(from)
		if err != nil {
			return nil, err
		}
		a, err := s.call(signCall{Text: string(text), From: from, Proof: proof})
		if err != nil {
			return nil, err
		}
		s.client.learn(a.Size)
		if !a.Behind {
			return a.Signature, nil
		}
	}
	return nil, errors.New("other processes have checkpoints of the host's log signed all the time: try again")
}

// call makes a call, which the end of its connection ends.
func (s signer) call(c signCall) (a signAnswer, err error) {
	c.Key, c.Manifest = s.hash, s.manifest
	if len(c.Text) > maxText {
		return a, errTooLong
	}
	_, err = s.client.server.Call(context.Background(), callSign, c, &a)
	return a, err
}

func (c *Client) known() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signed
}

func (c *Client) learn(size uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed = size
}

// Sealer returns the sealer of a run that this process writes.
func (c *Client) Sealer(run string, facts statement.Facts) wal.Sealer {
	return &runSealer{c.server, run, facts}
}

// Last returns the manifest of a run that was signed last, nil if there is none. The process that had it signed may have died before it wrote it.
func (c *Client) Last(ctx context.Context, run string) ([]byte, error) {
	var a lastAnswer
	_, err := c.server.Call(ctx, callLast, lastCall{run}, &a)
	return a.Manifest, err
}

// runSealer has the segments of one run sealed.
type runSealer struct {
	server Caller
	run    string
	facts  statement.Facts
}

// Seal implements wal.Sealer.
func (r *runSealer) Seal(s wal.Segment) (leaves, manifest []byte, err error) {
	seg, leaves := sealer.SegmentOf(s)
	_, err = r.server.Call(context.Background(), callSeal, sealCall{r.run, r.facts, seg}, &manifest)
	return leaves, manifest, err
}

// Parse implements wal.Sealer.
func (r *runSealer) Parse(manifest []byte) (wal.Segment, error) {
	return new(statement.Sealer).Parse(manifest)
}
