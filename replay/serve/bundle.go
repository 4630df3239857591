package serve

import (
	"context"
	"errors"
	"io"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/regular"
)

// Bundle is a bundle of which the records can be read. It reads a copy of the file, which stays as it is when the file is replaced
// or written to. It is safe for concurrent use, except for Close.
type Bundle struct {
	*host.BundleReader
	// Report is the result of the verification, as far as it went.
	Report proof.Report
	// Doubt is why the bundle could not be verified; nil if it was.
	Doubt error

	path     string
	remove   func() // the copy that path leads to
	evidence *proof.Evidence
	trust    proof.Trust
}

// RefusedError is a bundle that is not shown: it is no bundle, it does not verify, or it cannot be judged and strict was set.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return "the bundle is not shown: " + e.Err.Error() }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// OpenBundle verifies a bundle's file and opens it. A bundle that does not verify is a *RefusedError. One that cannot be
// judged, such as one signed by a key that t has not, is also refused if strict is set, and otherwise opened with its Doubt.
func OpenBundle(ctx context.Context, path string, t proof.Trust, strict bool) (*Bundle, error) {
	e, err := proof.OpenBundle(path) // a file that is no archive is not copied
	if err != nil {
		return nil, &RefusedError{err}
	}
	b, err := ReadBundle(ctx, e.Raw(), t, strict)
	if err = errors.Join(err, e.Close()); err != nil {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
		return nil, err
	}
	return b, nil
}

// ReadBundle is OpenBundle for a bundle that is read from r.
func ReadBundle(ctx context.Context, r io.Reader, t proof.Trust, strict bool) (*Bundle, error) {
	b := &Bundle{trust: t}
	var err error
	if b.path, b.remove, err = regular.Copy(ctx, r); err != nil {
		return nil, err
	}
	if err := b.open(ctx, strict); err != nil {
		return nil, errors.Join(&RefusedError{err}, b.Close())
	}
	return b, nil
}

func (b *Bundle) open(ctx context.Context, strict bool) (err error) {
	if b.evidence, err = proof.OpenBundle(b.path); err != nil {
		return err
	}
	b.Report, b.Doubt = proof.Verify(ctx, b.evidence, b.trust)
	if b.Doubt != nil && (strict || !errors.Is(b.Doubt, verdict.ErrCannotBeJudged)) {
		return b.Doubt
	}
	b.BundleReader, err = host.ReadBundle(ctx, b.evidence)
	return err
}

// Close implements host.Reader.
func (b *Bundle) Close() error {
	var errs []error
	if b.BundleReader != nil {
		errs = append(errs, b.BundleReader.Close())
	}
	if b.evidence != nil {
		errs = append(errs, b.evidence.Close())
	}
	b.remove()
	return errors.Join(errs...)
}
