package statement

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/wal"
)

const (
	manifestVersion = 1
	manifestType    = "custody manifest v1\n"
	MaxNote         = 64 << 10 // bytes of a signed note
)

// Facts are the parts of a run's manifests about the run as a whole.
type Facts struct {
	PolicyDigest   string `json:"policy_digest"`
	RulesetDigest  string `json:"ruleset_digest"`
	TemplateDigest string `json:"template_digest"`
	Tier           string `json:"tier"`
	Tenant         string `json:"tenant,omitempty"` // empty if there are no tenants
}

// Manifest is the signed summary of one segment.
type Manifest struct {
	V       int         `json:"v"`
	Run     string      `json:"run"`
	Segment uint64      `json:"segment"` // index, 0 for a run's first
	First   uint64      `json:"first"`   // seq of the first record; of the next one if Count is 0
	Last    uint64      `json:"last"`
	Count   uint64      `json:"count"` // 0 only in a closing manifest without records
	Bytes   int64       `json:"bytes"` // of the segment file
	Prev    merkle.Hash `json:"prev"`  // SHA-256 of the signed note before, empty for the first
	Root    merkle.Hash `json:"root"`
	Losses  wal.Losses  `json:"losses"` // declared by gap records in this segment
	Facts
	SealedAt time.Time   `json:"sealed_at"` // host time, UTC
	Closing  wal.Closing `json:"closing"`
}

// ParseManifest parses the text of a manifest without its signatures. It accepts
// the canonical encoding only.
func ParseManifest(text string) (Manifest, error) {
	var m Manifest
	if err := parseStatement(manifestType, text, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.V != manifestVersion:
		return Manifest{}, fmt.Errorf("manifest version %d, want %d: a newer custody can read it", m.V, manifestVersion)
	case !runNames.MatchString(m.Run):
		return Manifest{}, fmt.Errorf("manifest of a run that is named %.140q", m.Run)
	case !slices.Contains([]wal.Closing{wal.Open, wal.Sealed, wal.Interrupted}, m.Closing):
		return Manifest{}, fmt.Errorf("manifest whose closing is %.40q", m.Closing)
	case max(m.Segment, m.First, m.Last, m.Count) > MaxSeq:
		return Manifest{}, errors.New("manifest with a number above 2^63-1")
	case m.Count == 0 && m.Closing == wal.Open:
		return Manifest{}, errors.New("manifest of no records that does not close the run")
	case m.Losses == nil:
		return Manifest{}, errors.New("manifest without losses")
	}
	return m, nil
}

// runNames matches the names of runs (package wal), which occur in records, in entries of the log and in names of files.
var runNames = regexp.MustCompile(`^[0-9A-Za-z._-]{1,128}$`)

// Digest returns the SHA-256 of a signed manifest, which the next one names as prev.
func Digest(signed []byte) merkle.Hash { return sha256.Sum256(signed) }

// Sealer signs segments; it implements wal.Sealer.
type Sealer struct {
	signer note.Signer
	facts  Facts
}

// NewSealer returns a Sealer for one run. Facts that are zero are copied from the preceding
// manifest, so that a recovering process keeps them; see FactsOf for a
// run whose process died before its first manifest.
func NewSealer(signer note.Signer, facts Facts) *Sealer {
	return &Sealer{signer: signer, facts: facts}
}

var _ wal.Sealer = (*Sealer)(nil)

// Seal implements wal.Sealer.
func (s *Sealer) Seal(seg wal.Segment) (leaves, manifest []byte, err error) {
	leaves, root := Leaves(seg)
	manifest, err = s.Sign(seg, root)
	if err != nil {
		return nil, nil, err
	}
	return leaves, manifest, nil
}

// Leaves returns a segment's leaf hashes as they are stored, and the root of the tree over them.
func Leaves(seg wal.Segment) (leaves []byte, root merkle.Hash) {
	var tree merkle.Tree
	leaves = make([]byte, 0, len(seg.Leaves)*len(merkle.Hash{}))
	for _, leaf := range seg.Leaves {
		tree.Append(leaf)
		leaves = append(leaves, leaf[:]...)
	}
	return leaves, tree.Root()
}

// Sign signs the manifest of a segment with this root. It does not use the segment's leaves.
func (s *Sealer) Sign(seg wal.Segment, root merkle.Hash) ([]byte, error) {
	m := Manifest{
		V: manifestVersion, Run: seg.Run, Segment: seg.Index, First: seg.First, Last: seg.Last,
		Count: seg.Count, Bytes: seg.Bytes, Root: root, Losses: seg.Losses, Facts: s.facts,
		SealedAt: seg.Time.UTC(), Closing: seg.Closing,
	}
	if m.Losses == nil {
		m.Losses = wal.Losses{}
	}
	if err := m.follow(seg.Prev); err != nil {
		return nil, err
	}
	manifest, err := signStatement(manifestType, m, s.signer)
	if err != nil {
		return nil, fmt.Errorf("sign manifest: %w", err)
	}
	return manifest, nil
}

// follow chains m to the preceding signed manifest, if there is one.
func (m *Manifest) follow(prev []byte) error {
	if prev == nil {
		return nil
	}
	before, err := ReadManifest(prev)
	if err != nil {
		return fmt.Errorf("manifest before segment %d: %w", m.Segment, err)
	}
	if m.Facts == (Facts{}) {
		m.Facts = before.Facts
	}
	m.Prev = Digest(prev)
	return nil
}

// Parse implements wal.Sealer. It verifies no signature: Verify does.
func (s *Sealer) Parse(signed []byte) (wal.Segment, error) {
	m, err := ReadManifest(signed)
	return wal.Segment{
		Run: m.Run, Index: m.Segment, First: m.First, Last: m.Last, Count: m.Count,
		Bytes: m.Bytes, Losses: m.Losses, Time: m.SealedAt, Closing: m.Closing,
	}, err
}

// OpenManifest verifies the signature of a manifest with the trusted keys. It accepts the canonical form only.
func OpenManifest(signed []byte, trusted note.Verifiers) (Manifest, error) {
	n, err := OpenNote(signed, trusted)
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	if again, ok := Canonical(n); !ok || again != string(signed) {
		return Manifest{}, errors.New("manifest: the signed note is not in canonical form")
	}
	return ParseManifest(n.Text)
}

// ReadManifest parses the manifest in a note without verifying its signatures.
func ReadManifest(signed []byte) (Manifest, error) {
	n, err := Unverified(signed)
	if err != nil {
		return Manifest{}, fmt.Errorf("read signed note: %w", err)
	}
	return ParseManifest(n.Text)
}
