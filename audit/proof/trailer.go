package proof

import (
	"context"
	"crypto/sha256"
	"io"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

const (
	trailerFile = "trailer" // the last file of a bundle
)

// hashing sums up a bundle's bytes in the background. Its owner calls stop.
type hashing struct {
	cancel context.CancelFunc
	done   chan struct{}
	sum    merkle.Hash
	err    error
}

func hashAll(ctx context.Context, r io.ReaderAt, size int64) *hashing {
	ctx, cancel := context.WithCancel(ctx)
	h := &hashing{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		s := sha256.New()
		from := io.NewSectionReader(r, 0, size)
		for h.err == nil {
			if h.err = ctx.Err(); h.err == nil {
				_, h.err = io.CopyN(s, from, 1<<20)
			}
		}
		if h.err == io.EOF {
			h.err = nil
		}
		h.sum = merkle.Hash(s.Sum(nil))
	}()
	return h
}

// wait returns the sum of all bytes.
func (h *hashing) wait() (merkle.Hash, error) {
	<-h.done
	return h.sum, h.err
}

// stop ends the goroutine, and waits for it.
func (h *hashing) stop() {
	h.cancel()
	<-h.done
}

// trailed checks that all of a bundle is what the signer of its trailer wrote. Any key that is trusted may have
// signed it: the run's own host may have another one by now.
func (v *verifier) trailed(context.Context) error {
	if !v.evidence.bundle {
		return nil
	}
	signed, err := fromFiles{v.evidence}.file(trailerFile, statement.MaxNote)
	if err != nil {
		return err
	}
	n, by, known, err := v.ring.openSigned(signed)
	var t statement.Trailer
	if err == nil {
		t, err = statement.ParseTrailer(n.Text)
	}
	if err != nil {
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "%v", err)
	}
	sum, err := v.whole.wait()
	switch {
	case err != nil:
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	case t.Run != v.report.Run || t.Head != v.report.Head:
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "it is about run %s with head %s", t.Run, t.Head)
	case t.Files != uint64(v.evidence.archive.Len()-1) || t.Bytes != v.evidence.trailer || t.SHA256 != sum:
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "what stands before it was changed")
	case !known:
		v.doubt(verdict.Open(verdict.ErrUnknownKey, trailerFile, "%.80s signed the bundle; give its public key if you trust it", by.name))
	}
	return nil
}
