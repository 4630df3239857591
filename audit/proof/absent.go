package proof

import (
	"iter"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

// maxAbsent bounds the number of verdicts that Absent returns.
const maxAbsent = 1000

// Absent reads the entries of the host's log and returns a verdict for each run that has a manifest in the
// log but not here, at most 1000. has reports whether exactly that manifest, by its digest, is here, or was removed
// legitimately.
func Absent(entries iter.Seq2[[]byte, error], has func(run string, segment uint64, manifest merkle.Hash) bool) ([]*verdict.Verdict, error) {
	var all []*verdict.Verdict
	reported := map[string]bool{}
	for entry, err := range entries {
		if err != nil {
			return all, err
		}
		l, err := statement.ParseLeaf(entry)
		if err != nil || l.Of != statement.OfManifest || reported[l.Run] || has(l.Run, l.N, l.Digest) { // a newer version may log more
			continue
		}
		reported[l.Run] = true
		all = append(all, verdict.Broken(verdict.ErrRunMissing, 0, "", "run %s, segment %d, manifest %s", l.Run, l.N, l.Digest))
		if len(all) == maxAbsent {
			break
		}
	}
	return all, nil
}
