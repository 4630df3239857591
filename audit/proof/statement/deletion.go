package statement

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
)

const (
	deletionVersion = 1
	deletionType    = "custody deletion v1\n"
	// DeletionSuffix ends the name of a signed deletion, after the run's name.
	DeletionSuffix = ".deletion"
)

// Deletion is the signed statement that a whole run was deleted from its host, when and by which rule. Besides it only
// the entries of the host's log stay, which have the digests of the run's manifests.
//
//	custody deletion v1
//	{"v":1,"run":"r-...","began":"...","ended":"...","records":412,"segments":3,"manifest":"...","rule":"delete_after: 2160h0m0s","time":"..."}
type Deletion struct {
	V        int         `json:"v"`
	Run      string      `json:"run"`
	Tenant   string      `json:"tenant,omitempty"` // empty if there are no tenants
	Began    time.Time   `json:"began"`            // host time, UTC, as are all
	Ended    time.Time   `json:"ended"`            // when the closing manifest was sealed
	Records  uint64      `json:"records"`
	Segments uint64      `json:"segments"`
	Manifest merkle.Hash `json:"manifest"` // SHA-256 of the closing manifest, as the host's log has it
	Rule     string      `json:"rule"`     // why the run was deleted
	Time     time.Time   `json:"time"`     // when
}

// DeleteRule returns the Rule of deletions by the age of runs.
func DeleteRule(after time.Duration) string { return "delete_after: " + after.String() }

// Sign returns the statement as a signed note.
func (d Deletion) Sign(s note.Signer) ([]byte, error) {
	d.V = deletionVersion
	d.Began, d.Ended, d.Time = d.Began.UTC(), d.Ended.UTC(), d.Time.UTC()
	return signStatement(deletionType, d, s)
}

// ParseDeletion parses the text of a statement without its signature. It accepts the canonical encoding only.
func ParseDeletion(text string) (Deletion, error) {
	var d Deletion
	if err := parseStatement(deletionType, text, &d); err != nil {
		return Deletion{}, fmt.Errorf("deletion: %w", err)
	}
	switch {
	case d.V != deletionVersion:
		return Deletion{}, fmt.Errorf("deletion version %d, want %d: a newer custody can read it", d.V, deletionVersion)
	case !runNames.MatchString(d.Run):
		return Deletion{}, fmt.Errorf("deletion of a run that is named %.140q", d.Run)
	case d.Segments == 0 || d.Segments > MaxSeq || d.Records > MaxSeq:
		return Deletion{}, errors.New("deletion with a count that no run has")
	}
	return d, nil
}

// Leaves returns the entries in the host's log for a signed deletion: that of the run's closing manifest, and that of the
// statement.
func (d Deletion) Leaves(signed []byte) (manifest, deletion []byte) {
	return ManifestLeaf(d.Run, d.Segments-1, d.Manifest), DeletionLeaf(d.Run, d.Segments, Digest(signed))
}
