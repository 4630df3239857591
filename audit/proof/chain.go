package proof

import (
	"time"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// signed is a manifest and the result of its checks.
type signed struct {
	statement.Manifest
	file   string
	digest merkle.Hash
	key    keyID // of the trusted key that signed it, empty if none did
	logged bool  // the checkpoint covers it, as entry index of the log
	index  uint64
	oldest *time.Time // of its shown records; nil if there is none
}

// readManifests reads all manifests and checks their signatures and the chain.
func (v *verifier) readManifests() ([]signed, error) {
	firsts, err := v.evidence.list(wal.ManifestSuffix)
	if err != nil {
		return nil, verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	var all []signed
	for _, first := range firsts {
		m, err := v.openManifest(first)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, v.nothing()
	}
	if err := keys(all); err != nil {
		return nil, err
	}
	v.report.Run = all[0].Run
	for i := range all {
		if err := link(all, i); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// openManifest reads one manifest. If its key is unknown, it returns an empty key.
func (v *verifier) openManifest(first uint64) (signed, error) {
	file := wal.FileName(first, wal.ManifestSuffix)
	data, err := v.evidence.read(file, statement.MaxNote)
	if err != nil {
		return signed{}, verdict.Open(verdict.ErrUnreadable, file, "%v", err)
	}
	return v.readManifest(file, data)
}

// readManifest is openManifest for a manifest that was already read.
func (v *verifier) readManifest(file string, data []byte) (signed, error) {
	n, by, known, err := v.ring.openSigned(data)
	s := signed{file: file, digest: statement.Digest(data)}
	if err == nil {
		s.Manifest, err = statement.ParseManifest(n.Text)
	}
	if err != nil {
		return signed{}, verdict.Broken(verdict.ErrForged, 0, file, "%v", err)
	}
	if known {
		s.key = by
	}
	return s, nil
}

// keys distinguishes a run signed by an unknown key from a manifest that was inserted among others with
// valid signatures. A host can have had several keys with one name.
func keys(all []signed) error {
	var good, bad *signed
	for i := range all {
		switch {
		case all[i].key == keyID{}:
			if bad == nil {
				bad = &all[i]
			}
		case good == nil:
			good = &all[i]
		case all[i].key.name != good.key.name:
			return verdict.Broken(verdict.ErrForged, 0, all[i].file, "it is signed by %s, not by %s, which signed %s", all[i].key.name, good.key.name, good.file)
		}
	}
	switch {
	case bad == nil:
		return nil
	case good == nil:
		return verdict.Open(verdict.ErrUnknownKey, bad.file, "give its public key if you trust it")
	}
	return verdict.Broken(verdict.ErrForged, 0, bad.file, "it is not signed by %s, which signed %s", good.key.name, good.file)
}

// link checks manifest i against its predecessor.
func link(all []signed, i int) error {
	m := all[i]
	if m.Run != all[0].Run {
		return verdict.Broken(verdict.ErrRunMismatch, 0, m.file, "it belongs to run %s, %s to run %s", m.Run, all[0].file, all[0].Run)
	}
	if wal.FileName(m.First, wal.ManifestSuffix) != m.file {
		return verdict.Broken(verdict.ErrOutOfChain, 0, m.file, "its segment begins with seq %d", m.First)
	}
	if m.Segment > uint64(i) {
		return verdict.Broken(verdict.ErrManifestMissing, 0, "", "segment %d comes where segment %d is due", m.Segment, i)
	}
	if m.Segment < uint64(i) {
		return verdict.Broken(verdict.ErrOutOfChain, 0, m.file, "segment %d comes where segment %d is due", m.Segment, i)
	}
	if i == 0 {
		if m.Prev != (merkle.Hash{}) {
			return verdict.Broken(verdict.ErrOutOfChain, 0, m.file, "the first manifest names one before it")
		}
		return nil
	}
	before := all[i-1]
	switch {
	case before.Closing != wal.Open:
		return verdict.Broken(verdict.ErrAppended, m.First, m.file, "the record was closed by %s", before.file)
	case m.Prev != before.digest:
		return verdict.Broken(verdict.ErrOutOfChain, 0, m.file, "it follows manifest %s, not %s", m.Prev, before.digest)
	}
	return nil
}

// nothing returns the verdict for a run without any manifest.
func (v *verifier) nothing() error {
	segments, err := v.evidence.list(wal.SegmentSuffix)
	switch {
	case err != nil:
		return verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	case v.evidence.Live:
		return verdict.Open(verdict.ErrLive, "", "no segment is sealed yet")
	case len(segments) > 0:
		return verdict.Broken(verdict.ErrTailCut, 0, "", "there is no manifest at all, but %d segments", len(segments))
	}
	return verdict.Open(verdict.ErrNoEvidence, "", "neither manifest nor segment")
}
