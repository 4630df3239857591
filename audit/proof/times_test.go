package proof_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// runOn writes a closed run of three segments whose stated sealing time is on the given day.
func runOn(t testing.TB, k key, run string, at time.Time) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), run)
	ctx := context.Background()
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: prooftest.SealedOn{Sealer: statement.NewSealer(k.signer, facts), At: at}, SegmentAge: time.Hour})
	check(t, err)
	for range 3 {
		_, err := l.Append(ctx, output(t, "what happened\n"))
		check(t, err)
		check(t, l.Rotate(ctx))
	}
	check(t, l.Close(ctx, wal.Sealed))
	return dir
}

// rewritten is a host with a run of last year that an attacker has written again today, with the same id.
type rewritten struct {
	key
	log      *treeLog
	witness  prooftest.Witness
	then     time.Time
	past     prooftest.Past // begins with a checkpoint over the genuine run
	kept     []byte         // one from an hour later
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
	r.past = append(r.past, r.log.publish(t, r.witness.On(r.then.Add(3*time.Second))))
	r.log.log(t, runOn(t, k, "r-two", r.then.Add(time.Hour)))
	r.kept = r.log.publish(t, r.witness.On(r.then.Add(time.Hour)))
	r.replaced = runOn(t, k, "r-one", r.then)
	r.log.log(t, r.replaced)
	r.past = append(r.past, r.kept, r.log.publish(t, r.witness.On(time.Now())))
	return r
}

func (r *rewritten) trust() proof.Trust {
	return proof.Trust{Keys: r.trusted, Witnesses: []note.Verifier{r.witness}, Quorum: 1}
}

// inLog verifies a run with the log itself.
func (r *rewritten) inLog(t testing.TB, dir string, trust proof.Trust) (proof.Report, error) {
	t.Helper()
	e, err := proof.OpenDir(dir)
	check(t, err)
	defer e.Close()
	e.Log, e.Past = r.log, r.past
	return proof.Verify(t.Context(), e, trust)
}

func TestBackdated(t *testing.T) {
	w := newRewritten(t)
	trust := w.trust()
	trust.Since = w.kept
	_, err := w.inLog(t, w.replaced, trust)
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrBackdated, 0)
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
		"a clock that is slower": {-6 * time.Minute, verdict.ErrBackdated},
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
				wants(t, err, verdict.ErrDoesNotHold, verdict.ErrBackdated, 0)
			}
		})
	}

	// Without a witness the kept checkpoint has no time.
	r, err = w.inLog(t, w.replaced, proof.Trust{Keys: w.trusted, Since: w.kept})
	check(t, err)
	if !r.Published.SinceTime.IsZero() {
		t.Errorf("a time without a witness: %s", r.Published.SinceTime)
	}
}

// bundle is one of the run in dir, with the host's past checkpoints.
func (r *rewritten) bundle(t testing.TB, dir string) files {
	t.Helper()
	var b bytes.Buffer
	o := proof.BundleOptions{HostKey: r.public, Signer: r.signer, Log: r.log, Since: r.kept, Past: r.past}
	check(t, proof.WriteBundle(t.Context(), &b, dir, o))
	return unpack(t, b.Bytes())
}

// TestLate: an attacker who rewrites an old run has no witness from that time.
func TestLate(t *testing.T) {
	w := newRewritten(t)
	late := func(t *testing.T, err error) { t.Helper(); wants(t, err, verdict.ErrDoesNotHold, verdict.ErrLate, 0) }
	f := w.bundle(t, w.genuine)
	r, err := f.verify(t, w.trust())
	check(t, err)
	if p := r.Published; !p.Witnessed.Equal(w.then.Add(3*time.Second)) || p.Delay != 3*time.Second {
		t.Errorf("in the log by %s, %s after the seal", p.Witnessed, p.Delay)
	}
	again := w.bundle(t, w.replaced)
	_, err = again.verify(t, w.trust())
	late(t, err)
	_, err = w.inLog(t, w.genuine, w.trust())
	check(t, err)
	_, err = w.inLog(t, w.replaced, w.trust())
	late(t, err)
	_, err = again.verify(t, proof.Trust{Keys: w.trusted}) // docs/verify.md states that this holds
	check(t, err)

	t.Run("bounds", func(t *testing.T) {
		trust := w.trust()
		trust.Within = 3 * time.Second
		_, err := f.verify(t, trust)
		check(t, err)
		trust.Within--
		_, err = f.verify(t, trust)
		late(t, err)
	})
	t.Run("left out", func(t *testing.T) {
		f := maps.Clone(f)
		delete(f, name(4, ".witnessed"))
		_, err := f.seal(t, w.key).verify(t, w.trust())
		late(t, err)
	})
	t.Run("a closing of today behind segments of then", func(t *testing.T) {
		w := newRewritten(t)
		dir := filepath.Join(t.TempDir(), "r-four")
		sealer := &prooftest.SealedOn{Sealer: statement.NewSealer(w.signer, facts), At: w.then}
		l, err := wal.Create(dir, wal.Options{Run: "r-four", Sealer: sealer, SegmentAge: time.Hour})
		check(t, err)
		_, err = l.Append(t.Context(), output(t, "what did not happen\n"))
		check(t, err)
		check(t, l.Rotate(t.Context()))
		sealer.At = time.Now()
		check(t, l.Close(t.Context(), wal.Interrupted))
		w.log.log(t, dir)
		w.past = append(w.past, w.log.publish(t, w.witness.On(time.Now())))
		_, err = w.bundle(t, dir).verify(t, w.trust())
		late(t, err)
	})
	for title, closing := range map[string]wal.Closing{"another end, of today": wal.Interrupted, "another end, of today, in two parts": wal.Sealed} {
		t.Run(title, func(t *testing.T) {
			// docs/verify.md states that this holds, and what detects it.
			w := newRewritten(t)
			dir := clone(t, w.genuine)
			for _, file := range []string{name(4, ".manifest"), name(3, ".manifest"), name(3, ".leaves"), name(3, ".seg")} {
				check(t, os.Remove(filepath.Join(dir, file)))
			}
			l, _, err := wal.Recover(t.Context(), dir, wal.Options{Run: "r-one", Sealer: statement.NewSealer(w.signer, facts)})
			check(t, err)
			if closing == wal.Sealed { // a manifest between the pause and the end
				_, err := l.Append(t.Context(), outputAt(t, time.Now(), "what did not happen\n"))
				check(t, err)
				check(t, l.Rotate(t.Context()))
			}
			check(t, l.Close(t.Context(), closing))
			w.log.log(t, dir)
			w.past = append(w.past, w.log.publish(t, w.witness.On(time.Now())))
			r, err := w.bundle(t, dir).verify(t, w.trust())
			check(t, err)
			if r.Closing != closing || r.Pause < 364*24*time.Hour || r.Paused != 2 || time.Since(r.Sealed) > time.Hour {
				t.Errorf("%s, sealed at %s; %s after seq %d", r.Closing, r.Sealed, r.Pause, r.Paused)
			}
		})
	}
	t.Run("two witnesses", func(t *testing.T) {
		// The second witness has seen the log only today: it proves no old time.
		w := newRewritten(t)
		second := prooftest.NewWitness(t, "second.example")
		w.log.publish(t, w.witness.On(time.Now()), second.On(time.Now()))
		trust := w.trust()
		trust.Witnesses = append(trust.Witnesses, second)
		f := w.bundle(t, w.genuine)
		_, err := f.verify(t, trust)
		check(t, err)
		trust.Quorum = 2
		_, err = f.verify(t, trust)
		late(t, err)
	})
	for title, c := range map[string]struct {
		change func(t *testing.T, f files)
		want   error
	}{
		"no such header": {func(_ *testing.T, f files) { f[name(4, ".witnessed")][0] = 'C' }, verdict.ErrProofMalformed},
		"another path":   {func(t *testing.T, f files) { f[name(4, ".witnessed")] = addPath(t, f[name(4, ".witnessed")]) }, verdict.ErrForked},
		"shown twice":    {func(_ *testing.T, f files) { f[name(1, ".witnessed")] = f[name(4, ".witnessed")] }, nil},
		"forged": {func(t *testing.T, f files) {
			other := &treeLog{signer: newKey(t).signer}
			other.log(t, w.genuine)
			f[name(4, ".witnessed")] = append([]byte("custody witnessed v1\n\n"), other.publish(t)...)
		}, verdict.ErrCheckpoint},
		"another log": {func(t *testing.T, f files) {
			other := &treeLog{signer: w.signer}
			other.log(t, runOn(t, w.key, "r-one", w.then))
			f[name(4, ".witnessed")] = append([]byte("custody witnessed v1\n\n"), other.publish(t, w.witness.On(w.then))...)
		}, verdict.ErrForked},
		"a stamp beside nothing":               {func(_ *testing.T, f files) { f[name(2, ".witnessed.tsr")] = []byte("x") }, verdict.ErrStray},
		"a stamp, and no authority is trusted": {func(_ *testing.T, f files) { f[name(4, ".witnessed.tsr")] = []byte("x") }, nil},
		"beside no manifest":                   {func(_ *testing.T, f files) { f[name(9, ".witnessed")] = f[name(4, ".witnessed")] }, verdict.ErrStray},
	} {
		t.Run(title, func(t *testing.T) {
			f := files{}
			for name, data := range w.bundle(t, w.genuine) {
				f[name] = bytes.Clone(data)
			}
			c.change(t, f)
			_, err := f.seal(t, w.key).verify(t, w.trust())
			if c.want == nil {
				check(t, err)
			} else {
				wants(t, err, verdict.ErrDoesNotHold, c.want, 0)
			}
		})
	}
}

// TestOldRecords: a run with a stated sealing time of today has records with older times.
func TestOldRecords(t *testing.T) {
	now := time.Now().UTC()
	for name, c := range map[string]struct {
		ages  []time.Duration // of the records of the second segment
		since time.Duration   // age of the checkpoint that the verifier kept, if there is one
		want  error
	}{
		"of a day":                      {[]time.Duration{23 * time.Hour}, 0, nil},
		"older":                         {[]time.Duration{25 * time.Hour}, 0, verdict.ErrLate},
		"of last year":                  {[]time.Duration{365 * 24 * time.Hour}, 0, verdict.ErrLate},
		"of last year, between others":  {[]time.Duration{0, 365 * 24 * time.Hour, 0}, 0, verdict.ErrLate},
		"of tomorrow":                   {[]time.Duration{-24 * time.Hour}, 0, nil},
		"of a day before what was kept": {[]time.Duration{23 * time.Hour}, time.Hour, nil},
		"of last year, and a checkpoint was kept":    {[]time.Duration{365 * 24 * time.Hour}, time.Hour, verdict.ErrBackdated},
		"none in the segment behind that checkpoint": {nil, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			k, w := newKey(t), prooftest.NewWitness(t, "witness.example")
			log := &treeLog{signer: k.signer}
			log.log(t, runOn(t, k, "r-before", now.Add(-c.since)))
			kept := log.publish(t, w.On(now.Add(-c.since)))
			dir := filepath.Join(t.TempDir(), "r-one")
			l, err := wal.Create(dir, wal.Options{Run: "r-one", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
			check(t, err)
			_, err = l.Append(t.Context(), outputAt(t, now, "what happened\n"))
			check(t, err)
			check(t, l.Rotate(t.Context()))
			for _, age := range c.ages {
				_, err = l.Append(t.Context(), outputAt(t, now.Add(-age), "what happened\n"))
				check(t, err)
			}
			check(t, l.Close(t.Context(), wal.Sealed))
			log.log(t, dir)
			signed := log.publish(t, w.On(now.Add(time.Second)))
			o := proof.BundleOptions{HostKey: k.public, Signer: k.signer, Log: log, Past: prooftest.Past{signed}}
			trust := proof.Trust{Keys: k.trusted, Witnesses: []note.Verifier{w}, Quorum: 1}
			if c.since > 0 {
				o.Since, trust.Since = kept, kept
			}
			var b bytes.Buffer
			check(t, proof.WriteBundle(t.Context(), &b, dir, o))
			_, err = unpack(t, b.Bytes()).verify(t, trust)
			if c.want == nil {
				check(t, err)
			} else {
				wants(t, err, verdict.ErrDoesNotHold, c.want, 0)
			}
		})
	}
}

// TestFirstSecond: a record with a time in the first second of year 1 is old.
func TestFirstSecond(t *testing.T) {
	k, w := newKey(t), prooftest.NewWitness(t, "witness.example")
	log := &treeLog{signer: k.signer}
	dir := filepath.Join(t.TempDir(), "r-one")
	l, err := wal.Create(dir, wal.Options{Run: "r-one", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	_, err = l.Append(t.Context(), outputAt(t, time.Time{}, "what happened\n"))
	check(t, err)
	check(t, l.Close(t.Context(), wal.Sealed))
	log.log(t, dir)
	log.publish(t, w.On(time.Now()))
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: k.public, Signer: k.signer, Log: log}))
	_, err = unpack(t, b.Bytes()).verify(t, proof.Trust{Keys: k.trusted, Witnesses: []note.Verifier{w}, Quorum: 1})
	wants(t, err, verdict.ErrDoesNotHold, verdict.ErrLate, 0)
}

// addPath adds a hash to the proof of an earlier checkpoint.
func addPath(t *testing.T, data []byte) []byte {
	t.Helper()
	at := bytes.Index(data, []byte("\n\n"))
	h := merkle.Hash{1}
	return slices.Concat(data[:at+1], []byte(base64Of(h)+"\n"), data[at+1:])
}

// TestFirstCheckpointsShared: the manifests of a long run share checkpoints, and each is shown to have been logged in time.
func TestFirstCheckpointsShared(t *testing.T) {
	k := newKey(t)
	w := prooftest.NewWitness(t, "witness.example")
	log := &treeLog{signer: k.signer}
	then := time.Now().AddDate(0, -1, 0).UTC().Truncate(time.Second)
	dir := filepath.Join(t.TempDir(), "r-long")
	sealer := &prooftest.SealedOn{Sealer: statement.NewSealer(k.signer, facts)}
	l, err := wal.Create(dir, wal.Options{Run: "r-long", Sealer: sealer, SegmentAge: time.Hour})
	check(t, err)
	var past prooftest.Past
	for i := range 120 { // a segment a minute, for two hours
		_, err := l.Append(t.Context(), output(t, "line\n"))
		check(t, err)
		sealer.At = then.Add(time.Duration(i) * time.Minute)
		check(t, l.Rotate(t.Context()))
		log.log(t, dir)
		past = append(past, log.publish(t, w.On(sealer.At.Add(time.Second))))
	}
	check(t, l.Close(t.Context(), wal.Sealed))
	log.log(t, dir)
	past = append(past, log.publish(t, w.On(sealer.At.Add(time.Second))))
	log.add(t, []byte("later"))
	log.publish(t, w.On(time.Now()))
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, proof.BundleOptions{HostKey: k.public, Signer: k.signer, Log: log, Past: past}))
	f := unpack(t, b.Bytes())
	shown := 0
	for name := range f {
		if strings.HasSuffix(name, ".witnessed") {
			shown++
		}
	}
	if shown < 10 || shown > 14 {
		t.Errorf("%d checkpoints are shown", shown)
	}
	trust := proof.Trust{Keys: k.trusted, Witnesses: []note.Verifier{w}, Quorum: 1, Within: 10 * time.Minute}
	r, err := f.verify(t, trust)
	check(t, err)
	if !r.Published.Witnessed.Equal(sealer.At.Add(time.Second)) {
		t.Errorf("in the log by %s", r.Published.Witnessed)
	}
}
