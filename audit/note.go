package audit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Note is a remark about a run or about one of its records. It is a claim of its author and no evidence of what ran. It
// is in the access log of the host that accepted it, so it is signed there, and is never changed: another Note
// withdraws it, and both stay.
type Note struct {
	Who    string `json:"who"`              // name of the author, as the host established it
	Via    string `json:"via"`              // how: token, oidc, once, or cli for a user of the host
	Role   string `json:"role,omitempty"`   // that the author has in Tenant; a user of the host has none
	Tenant string `json:"tenant,omitempty"` // of the run
	About  string `json:"about"`            // name of the run
	// Seq and Leaf are of the record that the note is about, 0 and empty where it is about the whole run.
	// Leaf is the record's leaf in hex, so a note cannot be passed off as one about another record.
	Seq       uint64   `json:"seq,omitempty"`
	Leaf      string   `json:"leaf,omitempty"`
	Text      Text     `json:"text,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	Withdraws string   `json:"withdraws,omitempty"` // NoteID of a note that is withdrawn by this one
	Remote    string   `json:"remote,omitempty"`    // address of the client
}

// Noted is a note as it was recorded.
type Noted struct {
	ID   string    `json:"id"` // NoteID
	Time time.Time `json:"time"`
	Note
}

// Limits of a note.
const (
	MaxNoteText = 4096 // bytes
	MaxNoteTags = 8
	MaxNoteTag  = 32 // bytes
)

// Check returns the reason why n cannot be recorded, or nil.
func (n Note) Check() error {
	switch {
	case n.Who == "" || n.Via == "":
		return errors.New("a note needs an author")
	case n.About == "":
		return errors.New("a note needs a run")
	case (n.Seq == 0) != (n.Leaf == ""):
		return errors.New("a note about a record needs its seq and its leaf")
	case len(n.Text) > MaxNoteText:
		return fmt.Errorf("the text has %d bytes, at most %d are allowed", len(n.Text), MaxNoteText)
	case !utf8.ValidString(string(n.Text)):
		return errors.New("the text is not UTF-8")
	case len(n.Tags) > MaxNoteTags:
		return fmt.Errorf("%d tags, at most %d are allowed", len(n.Tags), MaxNoteTags)
	case n.Withdraws == "" && strings.TrimSpace(string(n.Text)) == "" && len(n.Tags) == 0:
		return errors.New("a note needs a text or a tag")
	}
	for i, tag := range n.Tags {
		if !ValidTag(tag) {
			return fmt.Errorf("%.40q is not a tag: it has 1 to %d of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit", tag, MaxNoteTag)
		}
		if slices.Contains(n.Tags[:i], tag) {
			return fmt.Errorf("duplicate tag %s", tag)
		}
	}
	if _, _, ok := ParseNoteID(n.Withdraws); n.Withdraws != "" && !ok {
		return fmt.Errorf("%.80q does not name a note", n.Withdraws)
	}
	return nil
}

// ValidTag reports whether a note can have this tag.
func ValidTag(tag string) bool {
	return tag != "" && len(tag) <= MaxNoteTag && !strings.ContainsAny(tag[:1], "._-") &&
		!strings.ContainsFunc(tag, func(c rune) bool {
			return !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c))
		})
}

// NoteID names the note that stands at seq of an access log.
func NoteID(log string, seq uint64) string { return log + ":" + strconv.FormatUint(seq, 10) }

// ParseNoteID is the inverse of NoteID.
func ParseNoteID(id string) (log string, seq uint64, ok bool) {
	log, digits, _ := strings.Cut(id, ":")
	seq, err := strconv.ParseUint(digits, 10, 63)
	return log, seq, err == nil && log != "" && NoteID(log, seq) == id
}
