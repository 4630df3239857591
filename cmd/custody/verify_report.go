package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/replay/report"
)

// verifyReport checks what custody report -o wrote: that the host made these files of these runs, and each run's bundle.
func (a *app) verifyReport(dir string, t proof.Trust) (j judged) {
	j.of = ofReport
	j.code, j.found = a.checkReport(dir, t, &j)
	return j
}

// checkReport notes the runs whose bundles hold in j.
func (a *app) checkReport(dir string, t proof.Trust, j *judged) (code, found error) {
	signed, err := readPlain(filepath.Join(dir, report.Statement))
	if err != nil {
		err = fmt.Errorf("this is no report that was signed: %w", err)
		return a.cannotBeJudged(err), err
	}
	files, err := reportFiles(dir)
	if err != nil {
		return a.cannotBeJudged(err), err
	}
	statement, err := proof.VerifyAttachments(signed, files, t.Keys)
	if errors.Is(err, proof.ErrUnknownKey) { // a key may have signed it that follows one which is trusted
		statement, err = proof.VerifyAttachments(signed, files, t.Keys, a.rotationsBeside(dir, statement.About, t)...)
	}
	if err != nil {
		return a.verdict(err, ""), err
	}
	for _, f := range statement.Files {
		fmt.Fprintf(a.stdout, "report    %s, %d bytes, by %s on %s\n", console.Clean(f.Name), f.Bytes, console.Clean(statement.By), statement.Time.Format(time.DateTime))
	}
	for _, run := range statement.About {
		err := a.verifySubject(dir, run, t)
		if errors.Is(err, errNoBundle) {
			return a.cannotBeJudged(err), err
		}
		if err != nil {
			return a.verdict(err, ""), err
		}
		j.runs = append(j.runs, run)
	}
	return a.verdict(nil, "verified: the report is the host's, and so are the records of the runs above"), nil
}

// rotationsBeside are the rotations that lead from trusted keys to others, in those bundles beside a report that verify.
func (a *app) rotationsBeside(dir string, about []proof.Subject, t proof.Trust) (all []proof.Rotation) {
	for _, run := range about {
		if r, err := a.subject(dir, run, t); err == nil {
			all = append(all, r.Rotations...)
		}
	}
	return all
}

// verifySubject checks the bundle of a run that a report is about.
func (a *app) verifySubject(dir string, run proof.Subject, t proof.Trust) error {
	r, err := a.subject(dir, run, t)
	if err != nil {
		return fmt.Errorf("run %s: %w", run.Run, err)
	}
	fmt.Fprintf(a.stdout, "run       %s, %d records, head %s\n", console.Clean(r.Run), r.Records, r.Head)
	return nil
}

// subject verifies the bundle of a run beside a report.
func (a *app) subject(dir string, run proof.Subject, t proof.Trust) (proof.Report, error) {
	path := filepath.Join(dir, filepath.Base(run.Run)+".tar")
	if err := plainFile(path); err != nil {
		return proof.Report{}, fmt.Errorf("%w: %w", errNoBundle, err)
	}
	e, err := proof.OpenBundle(path)
	if err != nil {
		return proof.Report{}, err
	}
	r, err := proof.Verify(a.ctx, e, t)
	if err == nil && (r.Run != run.Run || r.Head != run.Head) {
		err = errReportOfOther
	}
	return r, errors.Join(err, e.Close())
}

var (
	errReportOfOther = errors.New("the bundle is not of the run as it was when the report was made")
	errNoBundle      = errors.New("the run's bundle is not beside the report")
)

// reportFiles reads the files that a statement is about. Who made the directory may want to harm: what is no
// file, or is too long for one of a report's, is not read.
func reportFiles(dir string) ([]proof.Attachment, error) {
	entries, err := os.ReadDir(filepath.Join(dir, report.Folder))
	if err != nil {
		return nil, err
	}
	if len(entries) > maxReportFiles {
		return nil, fmt.Errorf("%s: %d files, at most %d are a report's", report.Folder, len(entries), maxReportFiles)
	}
	var files []proof.Attachment
	for _, e := range entries {
		data, err := readPlain(filepath.Join(dir, report.Folder, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, proof.Attachment{Name: report.Folder + e.Name(), Data: data})
	}
	return files, nil
}

// The bounds of what is read of a report: those that package proof has for what is attached.
const maxReportFiles, maxReportFile = 64, 64 << 20

// plainFile wants a regular file: opening a pipe waits for its writer.
func plainFile(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return regular.Check(path)
}

func readPlain(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxReportFile+1))
	if err == nil && len(data) > maxReportFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxReportFile)
	}
	return data, errors.Join(err, f.Close())
}
