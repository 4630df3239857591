package report

import "github.com/custody-project/custody/audit/proof"

// Folder is where the files of a report stand in a bundle, or beside bundles.
const Folder = "report/"

// Attachments are the report's files as a bundle holds them, or as proof.SignAttachments
// signs for them where the report is about several runs.
func (r *Report) Attachments() ([]proof.Attachment, error) {
	files, err := r.Files()
	if err != nil {
		return nil, err
	}
	list := make([]proof.Attachment, len(files))
	for i, f := range files {
		list[i] = proof.Attachment{Name: Folder + f.Name, Data: f.Bytes}
	}
	return list, nil
}

// Subjects are the runs, and the access logs, that the report is about, each with the head
// that was verified. What was not verified has none, and is left out: nobody can sign for it.
func (r *Report) Subjects() ([]proof.Subject, error) {
	var list []proof.Subject
	for _, s := range r.Sources {
		var head proof.Hash
		if err := head.UnmarshalText([]byte(s.Head)); err != nil {
			return nil, err
		}
		if head != (proof.Hash{}) {
			list = append(list, proof.Subject{Run: s.Run, Head: head})
		}
	}
	return list, nil
}
