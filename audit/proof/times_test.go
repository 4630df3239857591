package proof_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/wal"
)

// runOn writes a closed run of three segments that says it was sealed on a day.
func runOn(t testing.TB, k key, run string, at time.Time) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), run)
	ctx := context.Background()
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: prooftest.SealedOn{Sealer: proof.NewSealer(k.signer, facts), At: at}, SegmentAge: time.Hour})
	check(t, err)
	for range 3 {
		_, err := l.Append(ctx, output(t, "what happened\n"))
		check(t, err)
		check(t, l.Rotate(ctx))
	}
	check(t, l.Close(ctx, wal.Sealed))
	return dir
}

// rewritten is a host with a run of last year, whose past was written again today under the same id.
type rewritten struct {
	key
	log      *treeLog
	witness  prooftest.Witness
	then     time.Time
	first    []byte // the first checkpoint over the genuine run
	kept     []byte // one of an hour later
	genuine  string
	replaced string
}

func newRewritten(t testing.TB) *rewritten {
	t.Helper()
	k := newKey(t)
	r := &rewritten{key: k, log: &treeLog{signer: k.signer}, witness: prooftest.NewWitness(t, "witness.example")}
	r.then = time.Now().UTC().AddDate(-1, 0, 0).Truncate(time.Second)
	r.genuine = runOn(t, k, "r-one", r.then)
	r.log.log(t, r.genuine)
	r.first = r.log.publish(t, r.witness.On(r.then.Add(3*time.Second)))
	r.log.log(t, runOn(t, k, "r-two", r.then.Add(time.Hour)))
	r.kept = r.log.publish(t, r.witness.On(r.then.Add(time.Hour)))
	r.replaced = runOn(t, k, "r-one", r.then)
	r.log.log(t, r.replaced)
	r.log.publish(t, r.witness.On(time.Now()))
	return r
}

func (r *rewritten) trust() proof.Trust {
	return proof.Trust{Keys: r.trusted, Witnesses: []note.Verifier{r.witness}, Quorum: 1}
}

// inLog judges a run against the log itself.
func (r *rewritten) inLog(t testing.TB, dir string, trust proof.Trust) (proof.Report, error) {
	t.Helper()
	e, err := proof.OpenDir(dir)
	check(t, err)
	defer e.Close()
	e.Log = r.log
	return proof.Verify(t.Context(), e, trust)
}

func TestBackdated(t *testing.T) {
	w := newRewritten(t)
	trust := w.trust()
	trust.Since = w.kept
	_, err := w.inLog(t, w.replaced, trust)
	wants(t, err, proof.ErrDoesNotHold, proof.ErrBackdated, 0)
	r, err := w.inLog(t, w.genuine, trust)
	check(t, err)
	if !r.Published.SinceTime.Equal(w.then.Add(time.Hour)) {
		t.Errorf("the checkpoint that was kept was cosigned at %s", r.Published.SinceTime)
	}
	for name, c := range map[string]struct {
		sealed time.Duration // after the checkpoint
		want   error
	}{
		"a clock that is slow":   {-4 * time.Minute, nil},
		"a clock that is slower": {-6 * time.Minute, proof.ErrBackdated},
		"later":                  {time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRewritten(t)
			dir := runOn(t, w.key, "r-three", w.then.Add(time.Hour).Add(c.sealed))
			w.log.log(t, dir)
			w.log.publish(t, w.witness.On(w.then.Add(2*time.Hour)))
			trust := w.trust()
			trust.Since = w.kept
			_, err := w.inLog(t, dir, trust)
			if c.want == nil {
				check(t, err)
			} else {
				wants(t, err, proof.ErrDoesNotHold, proof.ErrBackdated, 0)
			}
		})
	}

	// Without a witness nobody says when the checkpoint was kept.
	r, err = w.inLog(t, w.replaced, proof.Trust{Keys: w.trusted, Since: w.kept})
	check(t, err)
	if !r.Published.SinceTime.IsZero() {
		t.Errorf("a time without a witness: %s", r.Published.SinceTime)
	}
}
