package proof

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/regular"
)

// FactsOf reads the facts of the run in dir for a process that recovers
// it: from its last manifest, or else from the record of the run's start. They are
// zero if neither was written. It verifies nothing.
func FactsOf(dir string) (statement.Facts, error) {
	e, err := OpenDir(dir)
	if err != nil {
		return statement.Facts{}, err
	}
	defer e.Close()
	firsts, err := e.list(wal.ManifestSuffix)
	if err != nil {
		return statement.Facts{}, fmt.Errorf("read facts of %s: %w", dir, err)
	}
	if len(firsts) == 0 {
		return startFacts(dir)
	}
	text, err := regular.ReadFile(filepath.Join(dir, wal.FileName(firsts[len(firsts)-1], wal.ManifestSuffix)))
	if err != nil {
		return statement.Facts{}, fmt.Errorf("read facts: %w", err)
	}
	m, err := statement.ReadManifest(text)
	return m.Facts, err
}

// startFacts reads them from the run's first record.
func startFacts(dir string) (statement.Facts, error) {
	segments, err := wal.Segments(dir)
	if err != nil || len(segments) == 0 {
		return statement.Facts{}, err
	}
	for f, err := range wal.ReadSegment(segments[0]) {
		if err != nil {
			break // torn: there is no start
		}
		var r audit.Record
		if err := json.Unmarshal(f.Bytes, &r); err != nil {
			return statement.Facts{}, fmt.Errorf("read facts: seq %d: %w", f.Seq, err)
		}
		if r.Kind == audit.KindRun && r.Lifecycle != nil {
			l := r.Lifecycle
			return statement.Facts{
				PolicyDigest: l.PolicyDigest, RulesetDigest: l.RulesetDigest, TemplateDigest: l.TemplateDigest, Tier: l.Tier, Tenant: l.Tenant,
			}, nil
		}
	}
	return statement.Facts{}, nil
}
