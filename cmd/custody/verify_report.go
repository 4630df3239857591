package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/replay/report"
)

// verifyReport checks what custody report -o wrote: that the host made these files of these runs, and each run's bundle.
func (a *app) verifyReport(dir string, t proof.Trust) (code, found error) {
	signed, err := os.ReadFile(filepath.Join(dir, report.Statement))
	if err != nil {
		err = fmt.Errorf("this is no report that was signed: %w", err)
		return a.cannotBeJudged(err), err
	}
	files, err := reportFiles(dir)
	if err != nil {
		return a.cannotBeJudged(err), err
	}
	statement, err := proof.VerifyAttachments(signed, files, t.Keys)
	if err != nil {
		return a.verdict(err, ""), err
	}
	for _, f := range statement.Files {
		fmt.Fprintf(a.stdout, "report    %s, %d bytes, by %s on %s\n", clean(f.Name), f.Bytes, clean(statement.By), statement.Time.Format(time.DateTime))
	}
	for _, run := range statement.About {
		if err := a.verifySubject(dir, run, t); err != nil {
			return a.verdict(err, ""), err
		}
	}
	return a.verdict(nil, "verified: the report is the host's, and so are the records of the runs above"), nil
}

// verifySubject checks the bundle of a run that a report is about.
func (a *app) verifySubject(dir string, run proof.Subject, t proof.Trust) error {
	e, err := proof.OpenBundle(filepath.Join(dir, filepath.Base(run.Run)+".zip"))
	if err != nil {
		return fmt.Errorf("run %s: %w", run.Run, err)
	}
	r, err := proof.Verify(a.ctx, e, t)
	if err == nil && (r.Run != run.Run || r.Head != run.Head) {
		err = errReportOfOther
	}
	if err := errors.Join(err, e.Close()); err != nil {
		return fmt.Errorf("run %s: %w", run.Run, err)
	}
	fmt.Fprintf(a.stdout, "run       %s, %d records, head %s\n", clean(r.Run), r.Records, r.Head)
	return nil
}

var errReportOfOther = errors.New("the bundle is not of the run as it was when the report was made")

// reportFiles reads the files that a statement is about.
func reportFiles(dir string) ([]proof.Attachment, error) {
	names, err := filepath.Glob(filepath.Join(dir, report.Folder, "*"))
	if err != nil {
		return nil, err
	}
	var files []proof.Attachment
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, proof.Attachment{Name: report.Folder + filepath.Base(name), Data: data})
	}
	return files, nil
}
