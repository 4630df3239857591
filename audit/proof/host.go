package proof

import (
	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
)

const (
	maxHosts = 1000 // statements in a bundle
)

// attest adds the keys that trusted roots state to be those of hosts. A statement of an unknown root has no effect, and
// is not a finding.
func (r *ring) attest(roots note.Verifiers, statements []signedFile) (used []statement.Host, err error) {
	if len(statements) > maxHosts {
		return nil, verdict.Broken(verdict.ErrBundleSize, 0, "", "%d statements about hosts, at most %d", len(statements), maxHosts)
	}
	if roots == nil {
		roots = note.VerifierList()
	}
	trusted := newRing(roots)
	for _, s := range statements {
		n, _, known, err := trusted.openSigned(s.signed)
		var h statement.Host
		if err == nil {
			h, err = statement.ParseHost(n.Text)
		}
		if err != nil {
			return used, verdict.Broken(verdict.ErrHostForged, 0, s.file, "%v", err)
		}
		if !known {
			continue
		}
		v, err := statement.ParseVerifier(h.Key)
		if err != nil {
			return used, verdict.Broken(verdict.ErrHostForged, 0, s.file, "%v", err)
		}
		if !r.knows(idOf(v)) {
			r.linked[idOf(v)] = v
		}
		used = append(used, h)
	}
	return used, nil
}
