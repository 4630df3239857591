package proof

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
)

const (
	trailerVersion = 1
	trailerType    = "custody trailer v1\n"
	trailerFile    = "trailer" // the last file of a bundle
)

// Trailer is the signed statement at a bundle's end that all bytes before it are as the host wrote them. It is not in
// the host's log.
//
//	custody trailer v1
//	{"v":1,"run":"r-...","head":"...","files":9,"bytes":40960,"sha256":"..."}
type Trailer struct {
	V      int    `json:"v"`
	Run    string `json:"run"`
	Head   Hash   `json:"head"`  // digest of the run's last manifest
	Files  uint64 `json:"files"` // before the trailer
	Bytes  int64  `json:"bytes"` // where the trailer's header begins
	SHA256 Hash   `json:"sha256"`
}

// ParseTrailer reads the text of a trailer without its signature. It takes the canonical encoding only.
func ParseTrailer(text string) (Trailer, error) {
	var t Trailer
	if err := parseStatement(trailerType, text, &t); err != nil {
		return Trailer{}, err
	}
	if t.V != trailerVersion {
		return Trailer{}, fmt.Errorf("trailer version %d, want %d: a newer custody can read it", t.V, trailerVersion)
	}
	return t, nil
}

// hashing sums up a bundle's bytes in the background. Its owner calls stop.
type hashing struct {
	cancel context.CancelFunc
	done   chan struct{}
	sum    Hash
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
		h.sum = Hash(s.Sum(nil))
	}()
	return h
}

// wait returns the sum of all bytes.
func (h *hashing) wait() (Hash, error) {
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
	signed, err := fromFiles{v.evidence}.file(trailerFile, maxManifest)
	if err != nil {
		return err
	}
	n, by, known, err := v.ring.openSigned(signed)
	var t Trailer
	if err == nil {
		t, err = ParseTrailer(n.Text)
	}
	if err != nil {
		return broken(ErrTrailer, 0, trailerFile, "%v", err)
	}
	sum, err := v.whole.wait()
	switch {
	case err != nil:
		return open(ErrUnreadable, "", "%v", err)
	case t.Run != v.report.Run || t.Head != v.report.Head:
		return broken(ErrTrailer, 0, trailerFile, "it is about run %s with head %s", t.Run, t.Head)
	case t.Files != uint64(v.evidence.archive.Len()-1) || t.Bytes != v.evidence.trailer || t.SHA256 != sum:
		return broken(ErrTrailer, 0, trailerFile, "what stands before it was changed")
	case !known:
		v.doubt(open(ErrUnknownKey, trailerFile, "%.80s signed the bundle; give its public key if you trust it", by.name))
	}
	return nil
}
