package proof

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// VerifyAttachments verifies a statement and its files, which must be exactly those that it names. A key to which
// rotations lead from one of keys is trusted like that one: they are the rotations that Verify followed in the runs'
// bundles (Report.Rotations). Any error is a *verdict.Verdict; with verdict.ErrUnknownKey it also returns the statement,
// unauthenticated. It does not check whether the runs are those in the statement: Verify their bundles for that.
func VerifyAttachments(signed []byte, files []statement.Attachment, keys note.Verifiers, rotations ...statement.Rotation) (statement.Attachments, error) {
	v := newVerifier(&Evidence{}, Trust{Keys: keys})
	if err := v.ring.follow(rotations); err != nil {
		return statement.Attachments{}, err
	}
	a, by, err := v.openAttachments(signed)
	if err != nil {
		return a, err
	}
	if (by == keyID{}) {
		return a, verdict.Open(verdict.ErrUnknownKey, attachmentsFile, "give its public key if you trust it")
	}
	have := map[string][]byte{}
	for _, f := range files {
		have[f.Name] = f.Data
	}
	for _, f := range a.Files {
		if err := holds(f, have[f.Name]); err != nil {
			return a, err
		}
		delete(have, f.Name)
	}
	for name := range have {
		return a, verdict.Broken(verdict.ErrAttachmentUnstated, 0, name, "")
	}
	return a, nil
}

// openAttachments parses a statement; by is empty if its key is not trusted.
func (v *verifier) openAttachments(signed []byte) (a statement.Attachments, by keyID, err error) {
	n, by, known, err := v.ring.openSigned(signed)
	if err == nil {
		a, err = statement.ParseAttachments(n.Text)
	}
	if err != nil {
		return a, keyID{}, verdict.Broken(verdict.ErrAttachmentForged, 0, attachmentsFile, "%v", err)
	}
	if !known {
		by = keyID{}
	}
	return a, by, nil
}

// holds checks that data is the file in the statement.
func holds(f statement.AttachedFile, data []byte) error {
	if int64(len(data)) != f.Bytes || statement.Digest(data) != f.SHA256 {
		return verdict.Broken(verdict.ErrAttachmentAltered, 0, f.Name, "it is missing, or not the one that was stated")
	}
	return nil
}
