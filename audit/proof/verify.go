package proof

import (
	"context"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// Verify verifies evidence with the keys, witnesses and times in trust: every signature, the chain of manifests, every
// record against its leaf and root, its form, the seqs, the gaps, the erasures, and the entries of the host's log. A
// nil error means that it holds from the first record to the closing manifest. Any error is a *verdict.Verdict, or ctx's.
// Verify returns a finding that leaves the question open only if there is no other.
//
// It verifies the records of the run's ancestors in the same way, as far as they are in the evidence.
func Verify(ctx context.Context, e *Evidence, t Trust) (Report, error) {
	return verify(ctx, e, t, false)
}

// verify is Verify, except that it does not follow the parent of an ancestor.
func verify(ctx context.Context, e *Evidence, t Trust, ancestor bool) (Report, error) {
	v := newVerifier(e, t)
	l := lineage{v: v, flat: ancestor}
	b := bundleCheck{v: v}
	if e.bundle {
		b.whole = hashAll(ctx, e.raw, e.trailer)
		defer b.whole.stop()
	}
	c := contents{v: v, withheld: statement.NewWithheld()}
	for _, step := range []func(context.Context) error{
		v.keys, v.chain, v.stated, c.check, b.strays, c.copied, b.attached, v.published, l.check, b.trailed,
	} {
		if err := step(ctx); err != nil {
			return v.report, err
		}
	}
	if v.open != nil {
		return v.report, v.open
	}
	return v.report, nil
}

// verifier is the state of Verify: the trusted keys, the statements that were read, and the result
// so far.
type verifier struct {
	evidence *Evidence
	trust    Trust
	ring     *ring
	report   Report
	open     *verdict.Verdict // the first thing that leaves the question open

	host      string // name of the key that signed
	manifests []signed
	rotations []signedFile
	stating   int // statements about hosts
	erasures  erasures
}

func newVerifier(e *Evidence, t Trust) *verifier {
	if t.Keys == nil {
		t.Keys = note.VerifierList()
	}
	return &verifier{
		evidence: e, trust: t,
		ring:     newRing(t.Keys),
		report:   Report{Losses: wal.Losses{}},
		erasures: erasures{},
	}
}

func (v *verifier) doubt(d *verdict.Verdict) {
	if v.open == nil {
		v.open = d
	}
}

// keys adds the keys that fleets' roots state, and follows the rotations from all trusted keys.
func (v *verifier) keys(context.Context) (err error) {
	hosts, err := v.evidence.hosts()
	if err != nil {
		return err
	}
	v.stating = len(hosts)
	if v.report.Hosts, err = v.ring.attest(v.trust.Fleets, hosts); err != nil {
		return err
	}
	if v.rotations, err = v.evidence.rotations(); err != nil {
		return err
	}
	v.report.Rotations, err = v.ring.link(v.rotations)
	return err
}

// chain reads the manifests.
func (v *verifier) chain(context.Context) (err error) {
	if v.manifests, err = v.readManifests(); err != nil || len(v.manifests) == 0 {
		return err
	}
	v.host = v.manifests[0].key.name
	if err := v.hostKey(); err != nil {
		return err
	}
	for _, m := range v.manifests {
		if err := v.early(m); err != nil {
			return err
		}
	}
	return v.selection()
}

// hostKey checks that a key of the run's chain is the one that a bundle names: it proves
// nothing, but a reader may rely on it.
func (v *verifier) hostKey() error {
	if !v.evidence.bundle {
		return nil
	}
	key, err := statement.ParseVerifier(v.evidence.HostKey)
	if err != nil {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%v", err)
	}
	if key.Name() != v.host {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "it is that of %.80s, and %.80s signed the run", key.Name(), v.host)
	}
	if !v.ring.knows(idOf(key)) {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%.80s is not trusted, and no rotation leads there", v.evidence.HostKey)
	}
	if len(v.manifests) > 0 && idOf(key) != v.manifests[0].key {
		return verdict.Broken(verdict.ErrHostKey, 0, hostKeyFile, "%.80s did not sign %s", v.evidence.HostKey, v.manifests[0].file)
	}
	return nil
}

// early checks that a manifest states no sealing time before the rotation that leads to the key which signed it: the
// previous key is gone, and cannot sign another history of that time.
func (v *verifier) early(m signed) error {
	since, ok := v.ring.since[m.key]
	if !ok || !m.SealedAt.Before(since.Add(-rotationGrace)) {
		return nil
	}
	return verdict.Broken(verdict.ErrEarly, 0, m.file, "it says that it was sealed at %s, the host has that key since %s",
		m.SealedAt.Format(time.RFC3339), since.Format(time.RFC3339))
}

func (v *verifier) firsts() map[uint64]bool {
	firsts := map[uint64]bool{}
	for _, m := range v.manifests {
		firsts[m.First] = true
	}
	return firsts
}

// witnessedFiles are the files that a stamp may accompany.
func (v *verifier) witnessedFiles() map[uint64]bool {
	known := map[uint64]bool{}
	numbers, _ := v.evidence.list(witnessedSuffix) // strays lists them too, and reports errors
	for _, n := range numbers {
		known[n] = true
	}
	return known
}
