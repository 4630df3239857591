package proof

import (
	"context"
	"crypto/sha256"
	"io"
	"io/fs"
	"slices"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// bundleCheck checks the files of a bundle: that each belongs to a manifest or statement, and that none was changed.
type bundleCheck struct {
	v     *verifier
	whole *hashing
}

// trailed checks that the signer of the trailer wrote the whole bundle. Any trusted key may have
// signed it: the run's host may have rotated its key.
func (b *bundleCheck) trailed(context.Context) error {
	if !b.v.evidence.bundle {
		return nil
	}
	signed, err := fromFiles{b.v.evidence}.file(trailerFile, statement.MaxNote)
	if err != nil {
		return err
	}
	n, by, known, err := b.v.ring.openSigned(signed)
	var t statement.Trailer
	if err == nil {
		t, err = statement.ParseTrailer(n.Text)
	}
	if err != nil {
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "%v", err)
	}
	sum, err := b.whole.wait()
	switch {
	case err != nil:
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	case t.Run != b.v.report.Run || t.Head != b.v.report.Head:
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "it is about run %s with head %s", t.Run, t.Head)
	case t.Files != uint64(b.v.evidence.archive.Len()-1) || t.Bytes != b.v.evidence.trailer || t.SHA256 != sum:
		return verdict.Broken(verdict.ErrTrailer, 0, trailerFile, "the bytes before it were changed")
	case !known:
		b.v.doubt(verdict.Open(verdict.ErrUnknownKey, trailerFile, "%.80s signed the bundle; give its public key if you trust it", by.name))
	}
	return nil
}

// hashing hashes a bundle's bytes in the background. Its owner must call stop.
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

// wait returns the hash of all bytes.
func (h *hashing) wait() (merkle.Hash, error) {
	<-h.done
	return h.sum, h.err
}

// stop stops the goroutine and waits for it.
func (h *hashing) stop() {
	h.cancel()
	<-h.done
}

// strays finds files in a bundle that belong to no manifest and no statement. A run's
// directory may have leftovers of a process that died.
func (b *bundleCheck) strays(context.Context) error {
	if !b.v.evidence.bundle {
		return nil
	}
	firsts, rotations := b.v.firsts(), map[uint64]bool{}
	for i := range b.v.rotations {
		rotations[uint64(i+1)] = true
	}
	if twice := repeated(b.v.rotations); twice != "" {
		return verdict.Broken(verdict.ErrStray, 0, twice, "it comes twice")
	}
	hosts := map[uint64]bool{}
	for i := range b.v.stating {
		hosts[uint64(i+1)] = true
	}
	stated := map[uint64]bool{}
	for seq := range b.v.erasures {
		stated[seq] = true
	}
	for suffix, known := range map[string]map[uint64]bool{
		wal.LeavesSuffix: firsts, proofSuffix: firsts, erasureProofSuffix: stated, rotationProofSuffix: rotations, statement.RotationSuffix: rotations, statement.HostSuffix: hosts,
		witnessedSuffix: firsts, witnessedStampSuffix: b.v.witnessedFiles(),
	} {
		numbers, err := b.v.evidence.list(suffix)
		if err != nil {
			return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
		}
		for _, n := range numbers {
			if !known[n] {
				return verdict.Broken(verdict.ErrStray, 0, wal.FileName(n, suffix), "")
			}
		}
	}
	return nil
}

// attached checks the files that are attached to a bundle.
func (b *bundleCheck) attached(ctx context.Context) error {
	if !b.v.evidence.bundle {
		return nil
	}
	signed, err := fromFiles{b.v.evidence}.file(attachmentsFile, statement.MaxNote)
	if err != nil {
		return err
	}
	names, err := fs.Glob(b.v.evidence.files, statement.AttachmentDir+"*")
	if err != nil {
		return verdict.Open(verdict.ErrUnreadable, statement.AttachmentDir, "%v", err)
	}
	if signed == nil {
		if len(names) > 0 {
			return verdict.Broken(verdict.ErrAttachmentUnstated, 0, names[0], "")
		}
		return nil
	}
	a, by, err := b.v.openAttachments(signed)
	switch {
	case err != nil:
		return err
	case by.name != b.v.host:
		return verdict.Broken(verdict.ErrAttachmentForged, 0, attachmentsFile, "no key of %s that is trusted here signed it", b.v.host)
	case !slices.Contains(a.About, statement.Subject{Run: b.v.report.Run, Head: b.v.report.Head}):
		return verdict.Broken(verdict.ErrAttachmentMismatch, 0, attachmentsFile, "it is not about run %s with head %s", b.v.report.Run, b.v.report.Head)
	}
	return b.attachedFiles(ctx, a, names)
}

func (b *bundleCheck) attachedFiles(ctx context.Context, a statement.Attachments, names []string) error {
	for _, f := range a.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := fromFiles{b.v.evidence}.file(f.Name, statement.MaxAttachment)
		if err == nil {
			err = holds(f, data)
		}
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == f.Name })
	}
	if len(names) > 0 {
		return verdict.Broken(verdict.ErrAttachmentUnstated, 0, names[0], "")
	}
	b.v.report.Attached = &a
	return nil
}
