package report

import (
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
)

// Folder is where the files of a report stand in a bundle, or beside bundles.
const Folder = "report/"

// Attachments are the report's files as a bundle holds them, or as statement.SignAttachments
// signs for them where the report is about several runs.
func (r *Report) Attachments() ([]statement.Attachment, error) {
	files, err := r.Files()
	if err != nil {
		return nil, err
	}
	list := make([]statement.Attachment, len(files))
	for i, f := range files {
		list[i] = statement.Attachment{Name: Folder + f.Name, Data: f.Bytes}
	}
	return list, nil
}

// Subjects are the runs, and the access logs, that the report is about, each with the head
// that was verified. What was not verified has none, and what goes on has one that will not be
// its last: they are left out, as no one can sign for them.
func (r *Report) Subjects() ([]statement.Subject, error) {
	var list []statement.Subject
	for _, s := range r.Sources {
		var head merkle.Hash
		if err := head.UnmarshalText([]byte(s.Head)); err != nil {
			return nil, err
		}
		if s.Whole() && head != (merkle.Hash{}) {
			list = append(list, statement.Subject{Run: s.Run, Head: head})
		}
	}
	return list, nil
}

// Statement is the name of the file with the signed statement about a report, beside its folder.
const Statement = "attachments"

// Sign returns the host's signed statement that it made these files of these runs; by is who
// asked for them. proof.VerifyAttachments checks it. A report of which no run was verified
// cannot be signed for.
func (r *Report) Sign(s note.Signer, by string, at time.Time) ([]byte, error) {
	files, err := r.Attachments()
	if err != nil {
		return nil, err
	}
	about, err := r.Subjects()
	if err != nil {
		return nil, err
	}
	return statement.SignAttachments(s, about, files, by, at)
}
