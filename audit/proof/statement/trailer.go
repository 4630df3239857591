package statement

import (
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
)

const (
	trailerVersion = 1
	trailerType    = "custody trailer v1\n"
)

// Trailer is the signed statement at a bundle's end that covers all bytes before it. It is not in
// the host's log.
//
//	custody trailer v1
//	{"v":1,"run":"r-...","head":"...","files":9,"bytes":40960,"sha256":"..."}
type Trailer struct {
	V      int         `json:"v"`
	Run    string      `json:"run"`
	Head   merkle.Hash `json:"head"`  // digest of the run's last manifest
	Files  uint64      `json:"files"` // before the trailer
	Bytes  int64       `json:"bytes"` // offset of the trailer's header
	SHA256 merkle.Hash `json:"sha256"`
}

// Sign returns the statement as a signed note.
func (t Trailer) Sign(s note.Signer) ([]byte, error) {
	t.V = trailerVersion
	return signStatement(trailerType, t, s)
}

// ParseTrailer parses the text of a trailer without its signature. It accepts the canonical encoding only.
func ParseTrailer(text string) (Trailer, error) {
	var t Trailer
	if err := parseStatement(trailerType, text, &t); err != nil {
		return Trailer{}, err
	}
	if t.V != trailerVersion {
		return Trailer{}, fmt.Errorf("trailer version %d, want %d: a newer custody can read it", t.V, trailerVersion)
	}
	return t, nil
}
