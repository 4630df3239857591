package proof

import (
	"fmt"
	"path/filepath"

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

// startFacts reads them from the run's start.
func startFacts(dir string) (statement.Facts, error) {
	l, err := startOf(dir)
	if err != nil || l == nil {
		return statement.Facts{}, err
	}
	return statement.Facts{
		PolicyDigest: l.PolicyDigest, RulesetDigest: l.RulesetDigest, TemplateDigest: l.TemplateDigest, Tier: l.Tier, Tenant: l.Tenant,
	}, nil
}
