package proof

import (
	"slices"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// statements reads the signed statements with that suffix, in the order of their numbers.
func (e *Evidence) statements(suffix string) ([]signedFile, error) {
	numbers, err := e.list(suffix)
	if err != nil {
		return nil, verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	var all []signedFile
	for _, n := range numbers {
		file := wal.FileName(n, suffix)
		data, err := e.read(file, statement.MaxNote)
		if err != nil {
			return nil, verdict.Open(verdict.ErrUnreadable, file, "%v", err)
		}
		all = append(all, signedFile{file: file, signed: data, digest: statement.Digest(data)})
	}
	return all, nil
}

// rotations returns the host's rotations, from the bundle or from Evidence.Rotations.
func (e *Evidence) rotations() ([]signedFile, error) {
	if e.bundle {
		return e.statements(statement.RotationSuffix)
	}
	var all []signedFile
	for i, signed := range e.Rotations {
		all = append(all, signedFile{file: wal.FileName(uint64(i+1), statement.RotationSuffix), signed: slices.Clone(signed), digest: statement.Digest(signed)})
	}
	return all, nil
}

// hosts are the statements about hosts' keys.
func (e *Evidence) hosts() ([]signedFile, error) {
	if e.bundle {
		return e.statements(statement.HostSuffix)
	}
	return nil, nil
}

// statement is a signed statement as read.
type signedFile struct {
	file   string
	signed []byte
	digest merkle.Hash
}

// manifestOver returns the manifest of the segment that contains seq, and its signed note. The note
// is nil if none contains it; the manifest is then the last one before seq, if there is one.
func (e *Evidence) manifestOver(seq uint64) (m statement.Manifest, signed []byte, err error) {
	firsts, err := e.list(wal.ManifestSuffix)
	if err != nil {
		return m, nil, verdict.Open(verdict.ErrUnreadable, "", "%v", err)
	}
	at, found := slices.BinarySearch(firsts, seq)
	if !found {
		at--
	}
	for ; at >= 0; at-- { // a closing manifest without records has no record at its first seq
		file := wal.FileName(firsts[at], wal.ManifestSuffix)
		if signed, err = e.read(file, statement.MaxNote); err != nil {
			return m, nil, verdict.Open(verdict.ErrUnreadable, file, "%v", err)
		}
		if m, err = statement.ReadManifest(signed); err != nil {
			return m, nil, verdict.Broken(verdict.ErrForged, 0, file, "%v", err)
		}
		if m.Count == 0 && at > 0 {
			continue
		}
		if m.Count > 0 && m.First <= seq && seq <= m.Last {
			return m, signed, nil
		}
		return m, nil, nil
	}
	return m, nil, nil
}
