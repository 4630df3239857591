package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/internal/regular"
)

// Checked is what Verify found in a report's directory, as far as it got.
type Checked struct {
	Statement statement.Attachments // the host's statement about the report's files
	Runs      []proof.Report        // of the runs whose bundles hold
}

// UnreadableError is why a directory cannot be verified: a part of the report is missing or cannot be read. It is no finding
// about the report.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// ErrOtherBundle means that a bundle beside a report is not of the run as the report states it.
var ErrOtherBundle = errors.New("the bundle is not of the run as it was when the report was made")

// The bounds of what is read of a report: those that package proof has for attachments.
const maxFiles, maxFile = 64, 64 << 20

// Verify checks the directory of a report: that a trusted host signed its files, and the bundle of each run that it is
// about. Its author may be hostile: only regular files of bounded size are read. The error is an *UnreadableError if
// the report could not be checked.
func Verify(ctx context.Context, dir string, t proof.Trust) (v Checked, err error) {
	signed, err := readFile(filepath.Join(dir, Statement))
	if err != nil {
		return v, &UnreadableError{fmt.Errorf("this is no report that was signed: %w", err)}
	}
	files, err := readFiles(dir)
	if err != nil {
		return v, &UnreadableError{err}
	}
	stated, err := proof.VerifyAttachments(signed, files, t.Keys)
	if errors.Is(err, verdict.ErrUnknownKey) { // a key may have signed it that follows one which is trusted
		stated, err = proof.VerifyAttachments(signed, files, t.Keys, rotations(ctx, dir, stated.About, t)...)
	}
	if err != nil {
		return v, err
	}
	v.Statement = stated
	for _, run := range stated.About {
		r, err := verifyBundle(ctx, dir, run, t)
		if unreadable := new(UnreadableError); errors.As(err, &unreadable) {
			return v, &UnreadableError{fmt.Errorf("run %s: %w", run.Run, unreadable.Err)}
		}
		if err != nil {
			return v, fmt.Errorf("run %s: %w", run.Run, err)
		}
		v.Runs = append(v.Runs, r)
	}
	return v, nil
}

// rotations returns those that lead from trusted keys to others, in the bundles that verify.
func rotations(ctx context.Context, dir string, about []statement.Subject, t proof.Trust) (all []statement.Rotation) {
	for _, run := range about {
		if r, err := verifyBundle(ctx, dir, run, t); err == nil {
			all = append(all, r.Rotations...)
		}
	}
	return all
}

// verifyBundle verifies the bundle of a run beside a report.
func verifyBundle(ctx context.Context, dir string, run statement.Subject, t proof.Trust) (proof.Report, error) {
	path := filepath.Join(dir, filepath.Base(run.Run)+".tar")
	if err := checkFile(path); err != nil {
		return proof.Report{}, &UnreadableError{fmt.Errorf("the run's bundle is not beside the report: %w", err)}
	}
	e, err := proof.OpenBundle(path)
	if err != nil {
		return proof.Report{}, err
	}
	r, err := proof.Verify(ctx, e, t)
	if err == nil && (r.Run != run.Run || r.Head != run.Head) {
		err = ErrOtherBundle
	}
	return r, errors.Join(err, e.Close())
}

// readFiles reads the files that a statement is about.
func readFiles(dir string) ([]statement.Attachment, error) {
	entries, err := os.ReadDir(filepath.Join(dir, Folder))
	if err != nil {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("%s: %d files, at most %d are a report's", Folder, len(entries), maxFiles)
	}
	var files []statement.Attachment
	for _, e := range entries {
		data, err := readFile(filepath.Join(dir, Folder, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, statement.Attachment{Name: Folder + e.Name(), Data: data})
	}
	return files, nil
}

// checkFile returns an error unless path is a regular file: opening a pipe would wait for its writer.
func checkFile(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return regular.Check(path)
}

func readFile(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return data, errors.Join(err, f.Close())
}
