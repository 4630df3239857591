package proof

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	attachmentsVersion = 1
	attachmentsType    = "custody attachments v1\n"
	attachmentsFile    = "attachments" // the signed statement, in a bundle

	// AttachmentDir begins the name of each attached file.
	AttachmentDir  = "report/"
	maxAttachment  = 64 << 20 // bytes of one
	maxAttachments = 64
)

// Attachment is a file that goes with a bundle and is no part of the record: a report that was
// made of it.
type Attachment struct {
	Name string // report/ and a name of letters, digits, and . _ - inside
	Data []byte
}

// Attachments is the host's signed statement that it made these files of these runs. It is not in the host's log.
//
//	custody attachments v1
//	{"v":1,"about":[{"run":"r-...","head":"..."}],"files":[{"name":"report/soc2.html","bytes":9,"sha256":"..."}],"by":"...","time":"..."}
type Attachments struct {
	V     int            `json:"v"`
	About []Subject      `json:"about"`
	Files []AttachedFile `json:"files"` // in the order of their names
	By    string         `json:"by"`
	Time  time.Time      `json:"time"` // host time, UTC
}

// Subject is a run as it was when something was said of it.
type Subject struct {
	Run  string `json:"run"`
	Head Hash   `json:"head"` // digest of its last manifest then
}

// AttachedFile is what a statement says of a file.
type AttachedFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 Hash   `json:"sha256"`
}

// SignAttachments returns the signed statement about files. It can stand beside them without a
// bundle: VerifyAttachments checks it.
func SignAttachments(s note.Signer, about []Subject, files []Attachment, by string, at time.Time) ([]byte, error) {
	a := Attachments{V: attachmentsVersion, About: slices.Clone(about), By: by, Time: at.UTC()}
	for _, f := range files {
		if !attachable(f.Name) || len(f.Data) == 0 || len(f.Data) > maxAttachment {
			return nil, fmt.Errorf("attach %.200q of %d bytes: want %sNAME, not empty, at most %d bytes", f.Name, len(f.Data), AttachmentDir, maxAttachment)
		}
		a.Files = append(a.Files, AttachedFile{f.Name, int64(len(f.Data)), sha256.Sum256(f.Data)})
	}
	slices.SortFunc(a.Files, func(x, y AttachedFile) int { return strings.Compare(x.Name, y.Name) })
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	signed, err := signStatement(attachmentsType, a, s)
	if err != nil {
		return nil, fmt.Errorf("attach to %d runs: %w", len(about), err)
	}
	return signed, nil
}

// check wants what SignAttachments makes.
func (a Attachments) check() error {
	switch {
	case a.V != attachmentsVersion:
		return fmt.Errorf("attachments version %d, want %d: a newer custody can read it", a.V, attachmentsVersion)
	case len(a.About) == 0:
		return errors.New("they are about no run")
	case len(a.Files) == 0 || len(a.Files) > maxAttachments:
		return fmt.Errorf("%d files, from 1 to %d", len(a.Files), maxAttachments)
	}
	seen := map[string]bool{} // a file system may not distinguish case
	for i, f := range a.Files {
		lower := strings.ToLower(f.Name)
		if seen[lower] {
			return fmt.Errorf("%s differs from another file's name in case only", f.Name)
		}
		seen[lower] = true
		if !attachable(f.Name) || i > 0 && f.Name <= a.Files[i-1].Name {
			return fmt.Errorf("a file is named %.200q", f.Name)
		}
		if f.Bytes < 1 || f.Bytes > maxAttachment {
			return fmt.Errorf("%s has %d bytes, from 1 to %d", f.Name, f.Bytes, maxAttachment)
		}
	}
	return nil
}

// ParseAttachments reads the text of a statement without its signature. It takes the canonical encoding only.
func ParseAttachments(text string) (Attachments, error) {
	var a Attachments
	if err := parseStatement(attachmentsType, text, &a); err != nil {
		return Attachments{}, err
	}
	return a, a.check()
}

// VerifyAttachments checks a statement and its files, which have to be all of them and no other. A key to which
// rotations lead from one of keys is trusted like that one: they are the rotations that Verify followed in the runs'
// bundles (Report.Rotations). Any error is a *Verdict; with ErrUnknownKey the statement is returned all the same,
// unauthenticated. Whether the runs are those in the statement is for Verify of their bundles.
func VerifyAttachments(signed []byte, files []Attachment, keys note.Verifiers, rotations ...Rotation) (Attachments, error) {
	v := newVerifier(&Evidence{}, Trust{Keys: keys})
	if err := v.ring.follow(rotations); err != nil {
		return Attachments{}, err
	}
	a, by, err := v.openAttachments(signed)
	if err != nil {
		return a, err
	}
	if (by == keyID{}) {
		return a, open(ErrUnknownKey, attachmentsFile, "give its public key if you trust it")
	}
	have := map[string][]byte{}
	for _, f := range files {
		have[f.Name] = f.Data
	}
	for _, f := range a.Files {
		if err := f.holds(have[f.Name]); err != nil {
			return a, err
		}
		delete(have, f.Name)
	}
	for name := range have {
		return a, broken(ErrAttachmentUnstated, 0, name, "")
	}
	return a, nil
}

// openAttachments reads a statement; by is empty if its key is not trusted here.
func (v *verifier) openAttachments(signed []byte) (a Attachments, by keyID, err error) {
	n, by, known, err := v.ring.openSigned(signed)
	if err == nil {
		a, err = ParseAttachments(n.Text)
	}
	if err != nil {
		return a, keyID{}, broken(ErrAttachmentForged, 0, attachmentsFile, "%v", err)
	}
	if !known {
		by = keyID{}
	}
	return a, by, nil
}

func (f AttachedFile) holds(data []byte) error {
	if int64(len(data)) != f.Bytes || Digest(data) != f.SHA256 {
		return broken(ErrAttachmentAltered, 0, f.Name, "it is missing, or not the one that was stated")
	}
	return nil
}

// attachable reports whether a file of that name may be attached.
func attachable(name string) bool {
	base, ok := strings.CutPrefix(name, AttachmentDir)
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	return ok && base != "" && base[0] != '.' && len(base) <= 100 && !strings.ContainsFunc(base, odd)
}

// addAttachments adds the files, and the statement about them.
func (b *bundler) addAttachments() {
	if len(b.Attachments) == 0 {
		return
	}
	for _, f := range b.Attachments {
		b.addBytes(f.Name, f.Data)
	}
	b.add(attachmentsFile, func() ([]byte, error) {
		about := slices.DeleteFunc(slices.Clone(b.About), func(s Subject) bool { return s.Run == b.head.Run })
		return SignAttachments(b.Signer, append([]Subject{b.head}, about...), b.Attachments, b.By, b.Time)
	})
}

// attached checks the files that a bundle brought along.
func (v *verifier) attached(ctx context.Context) error {
	if !v.evidence.bundle {
		return nil
	}
	signed, err := fromFiles{v.evidence}.file(attachmentsFile, maxManifest)
	if err != nil {
		return err
	}
	names, err := fs.Glob(v.evidence.files, AttachmentDir+"*")
	if err != nil {
		return open(ErrUnreadable, AttachmentDir, "%v", err)
	}
	if signed == nil {
		if len(names) > 0 {
			return broken(ErrAttachmentUnstated, 0, names[0], "")
		}
		return nil
	}
	a, by, err := v.openAttachments(signed)
	switch {
	case err != nil:
		return err
	case by.name != v.host:
		return broken(ErrAttachmentForged, 0, attachmentsFile, "no key of %s that is trusted here signed it", v.host)
	case !slices.Contains(a.About, Subject{v.report.Run, v.report.Head}):
		return broken(ErrAttachmentMismatch, 0, attachmentsFile, "it is not about run %s with head %s", v.report.Run, v.report.Head)
	}
	return v.attachedFiles(ctx, a, names)
}

func (v *verifier) attachedFiles(ctx context.Context, a Attachments, names []string) error {
	for _, f := range a.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := fromFiles{v.evidence}.file(f.Name, maxAttachment)
		if err == nil {
			err = f.holds(data)
		}
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == f.Name })
	}
	if len(names) > 0 {
		return broken(ErrAttachmentUnstated, 0, names[0], "")
	}
	v.report.Attached = &a
	return nil
}
