package statement

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
)

const (
	attachmentsVersion = 1
	attachmentsType    = "custody attachments v1\n"
	// AttachmentDir begins the name of each attached file.
	AttachmentDir  = "report/"
	MaxAttachment  = 64 << 20 // bytes of one
	maxAttachments = 64
)

// Attachment is a file that is added to a bundle and is not a part of the record: a report
// on it.
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

// Subject is a run at the time of a statement.
type Subject struct {
	Run  string      `json:"run"`
	Head merkle.Hash `json:"head"` // digest of its last manifest at that time
}

// AttachedFile describes a file in a statement.
type AttachedFile struct {
	Name   string      `json:"name"`
	Bytes  int64       `json:"bytes"`
	SHA256 merkle.Hash `json:"sha256"`
}

// SignAttachments returns the signed statement about files. It can accompany them without a
// bundle: VerifyAttachments verifies it.
func SignAttachments(s note.Signer, about []Subject, files []Attachment, by string, at time.Time) ([]byte, error) {
	a := Attachments{V: attachmentsVersion, About: slices.Clone(about), By: by, Time: at.UTC()}
	for _, f := range files {
		if !Attachable(f.Name) || len(f.Data) == 0 || len(f.Data) > MaxAttachment {
			return nil, fmt.Errorf("attach %.200q of %d bytes: want %sNAME, not empty, at most %d bytes", f.Name, len(f.Data), AttachmentDir, MaxAttachment)
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

// check accepts exactly the statements that SignAttachments makes.
func (a Attachments) check() error {
	switch {
	case a.V != attachmentsVersion:
		return fmt.Errorf("attachments version %d, want %d: a newer custody can read it", a.V, attachmentsVersion)
	case len(a.About) == 0:
		return errors.New("they are about no run")
	case len(a.Files) == 0 || len(a.Files) > maxAttachments:
		return fmt.Errorf("%d files, from 1 to %d", len(a.Files), maxAttachments)
	}
	seen := map[string]bool{} // a file system may ignore case
	for i, f := range a.Files {
		lower := strings.ToLower(f.Name)
		if seen[lower] {
			return fmt.Errorf("%s differs from another file's name in case only", f.Name)
		}
		seen[lower] = true
		if !Attachable(f.Name) || i > 0 && f.Name <= a.Files[i-1].Name {
			return fmt.Errorf("a file is named %.200q", f.Name)
		}
		if f.Bytes < 1 || f.Bytes > MaxAttachment {
			return fmt.Errorf("%s has %d bytes, from 1 to %d", f.Name, f.Bytes, MaxAttachment)
		}
	}
	return nil
}

// ParseAttachments parses the text of a statement without its signature. It accepts the canonical encoding only.
func ParseAttachments(text string) (Attachments, error) {
	var a Attachments
	if err := parseStatement(attachmentsType, text, &a); err != nil {
		return Attachments{}, err
	}
	return a, a.check()
}

// attachable reports whether a file of that name may be attached.
func Attachable(name string) bool {
	base, ok := strings.CutPrefix(name, AttachmentDir)
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	return ok && base != "" && base[0] != '.' && len(base) <= 100 && !strings.ContainsFunc(base, odd)
}
