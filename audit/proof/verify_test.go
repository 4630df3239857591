package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

func TestVerifyHolds(t *testing.T) {
	k := newKey(t)
	report, err := verifyDir(t, newRun(t, k, "r-one"), k.trusted)
	check(t, err)
	if report.Run != "r-one" || report.Records != 15 || report.Segments != 3 || report.First != 1 || report.Last != 15 ||
		report.HoldsTo != 15 || report.Closing != wal.Sealed || report.Facts != facts || report.KeyName != "custody-test" {
		t.Errorf("report: %+v", report)
	}
}

func TestTamper(t *testing.T) {
	k, other := newKey(t), newKey(t)
	run, second := newRun(t, k, "r-one"), newRun(t, k, "r-two")
	forge := func(text string) string { return text }
	for name, c := range map[string]struct {
		tamper  func(t *testing.T, dir string)
		finding error
		seq     uint64
	}{
		"record changed, checksum put right": {func(t *testing.T, dir string) {
			edit(t, segPath(dir, 6), func(b []byte) []byte {
				fs := decode(t, bytes.Replace(b, []byte("line 8"), []byte("line X"), 1))
				return encode(fs)
			})
		}, verdict.ErrAltered, 8},
		"record made longer, checksum put right": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame {
				fs[2].record = bytes.Replace(fs[2].record, []byte("line 8"), []byte("line eight"), 1)
				return fs
			})
		}, verdict.ErrAltered, 8},
		"seq changed, checksum put right": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame {
				fs[2].record = bytes.Replace(fs[2].record, []byte(`"seq":8`), []byte(`"seq":3`), 1)
				return fs
			})
		}, verdict.ErrAltered, 8},
		"salt changed": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { fs[0].salt[3]++; return fs })
		}, verdict.ErrAltered, 6},
		"record and leaves changed": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { fs[0].salt[3]++; return fs })
			edit(t, leavesPath(dir, 6), func(b []byte) []byte { b[0]++; return b })
		}, verdict.ErrAltered, 0},
		"record dropped": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return slices.Delete(fs, 2, 3) })
		}, verdict.ErrMissing, 8},
		"last record of a segment dropped": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return fs[:4] })
		}, verdict.ErrMissing, 10},
		"segment cut inside a record": {func(t *testing.T, dir string) {
			edit(t, segPath(dir, 6), func(b []byte) []byte { return b[:len(b)-5] })
		}, verdict.ErrMissing, 10},
		"segment emptied": {func(t *testing.T, dir string) {
			edit(t, segPath(dir, 6), func(b []byte) []byte { return nil })
		}, verdict.ErrMissing, 6},
		"neighbours swapped": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { fs[1], fs[2] = fs[2], fs[1]; return fs })
		}, verdict.ErrReordered, 7},
		"record moved to the end": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return append(fs[1:], fs[0]) })
		}, verdict.ErrReordered, 6},
		"segments swapped": {func(t *testing.T, dir string) {
			swap(t, segPath(dir, 1), segPath(dir, 6))
		}, verdict.ErrReordered, 1},
		"record doubled": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return slices.Insert(fs, 2, fs[1]) })
		}, verdict.ErrDuplicated, 7},
		"record repeated at the end": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return append(fs, fs[1]) })
		}, verdict.ErrDuplicated, 7},
		"record repeated before its time": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame { return slices.Insert(fs, 1, fs[3]) })
		}, verdict.ErrDuplicated, 9},
		"record inserted": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 6), func(fs []frame) []frame {
				fake := frame{record: bytes.Replace(fs[1].record, []byte("line"), []byte("fake"), 1)}
				return slices.Insert(fs, 1, fake)
			})
		}, verdict.ErrInserted, 7},
		"segment inserted": {func(t *testing.T, dir string) {
			copyFile(t, segPath(dir, 1), segPath(dir, 3))
			check(t, os.Remove(manifestPath(dir, 11)))
		}, verdict.ErrInserted, 3},
		"record appended behind the closing": {func(t *testing.T, dir string) {
			reframe(t, segPath(dir, 11), func(fs []frame) []frame {
				return append(fs, frame{record: bytes.Replace(fs[4].record, []byte(`"seq":15`), []byte(`"seq":16`), 1)})
			})
		}, verdict.ErrAppended, 16},
		"garbage appended behind the closing": {func(t *testing.T, dir string) {
			edit(t, segPath(dir, 11), func(b []byte) []byte { return append(b, 'x') })
		}, verdict.ErrAppended, 0},
		"segment appended behind the closing": {func(t *testing.T, dir string) {
			copyFile(t, segPath(dir, 11), segPath(dir, 16))
		}, verdict.ErrAppended, 16},
		"signed segment appended behind the closing": {func(t *testing.T, dir string) {
			copyFile(t, manifestPath(dir, 11), manifestPath(dir, 16))
			resign(t, manifestPath(dir, 16), k, func(s string) string {
				return strings.NewReplacer(`"segment":2`, `"segment":3`, `"first":11,"last":15`, `"first":16,"last":20`).Replace(s)
			})
		}, verdict.ErrAppended, 16},
		"closing manifest removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(manifestPath(dir, 11)))
		}, verdict.ErrTailCut, 0},
		"last segment removed with all that belongs to it": {func(t *testing.T, dir string) {
			for _, path := range []string{segPath(dir, 11), leavesPath(dir, 11), manifestPath(dir, 11)} {
				check(t, os.Remove(path))
			}
		}, verdict.ErrTailCut, 0},
		"all manifests removed": {func(t *testing.T, dir string) {
			for _, first := range []uint64{1, 6, 11} {
				check(t, os.Remove(manifestPath(dir, first)))
			}
		}, verdict.ErrTailCut, 0},
		"segment removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(segPath(dir, 6)))
		}, verdict.ErrSegmentMissing, 6},
		"manifest removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(manifestPath(dir, 6)))
		}, verdict.ErrManifestMissing, 0},
		"first manifest removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(manifestPath(dir, 1)))
		}, verdict.ErrManifestMissing, 0},
		"manifest and segment removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(manifestPath(dir, 6)))
			check(t, os.Remove(segPath(dir, 6)))
		}, verdict.ErrManifestMissing, 0},
		"manifest changed": {func(t *testing.T, dir string) {
			edit(t, manifestPath(dir, 6), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"count":5`), []byte(`"count":4`), 1)
			})
		}, verdict.ErrForged, 0},
		"manifest signed by another key": {func(t *testing.T, dir string) {
			resign(t, manifestPath(dir, 6), other, forge)
		}, verdict.ErrForged, 0},
		"manifest with another signature beside the right one": {func(t *testing.T, dir string) {
			data, err := os.ReadFile(manifestPath(dir, 6))
			check(t, err)
			resign(t, manifestPath(dir, 6), other, forge)
			edit(t, manifestPath(dir, 6), func(b []byte) []byte {
				return append(data, b[bytes.LastIndex(b, []byte("— ")):]...)
			})
		}, verdict.ErrForged, 0},
		"manifests swapped": {func(t *testing.T, dir string) {
			swap(t, manifestPath(dir, 1), manifestPath(dir, 6))
		}, verdict.ErrOutOfChain, 0},
		"manifest that names another before it": {func(t *testing.T, dir string) {
			resign(t, manifestPath(dir, 6), k, func(s string) string {
				return replacePrev(s)
			})
		}, verdict.ErrOutOfChain, 0},
		"manifest of another run": {func(t *testing.T, dir string) {
			copyFile(t, manifestPath(second, 6), manifestPath(dir, 6))
		}, verdict.ErrRunMismatch, 0},
		"segment of another run": {func(t *testing.T, dir string) {
			copyFile(t, segPath(second, 6), segPath(dir, 6))
		}, verdict.ErrRunMismatch, 6},
		"all manifests of another run": {func(t *testing.T, dir string) {
			for _, first := range []uint64{1, 6, 11} {
				copyFile(t, manifestPath(second, first), manifestPath(dir, first))
			}
		}, verdict.ErrRunMismatch, 1},
		"leaves changed": {func(t *testing.T, dir string) {
			edit(t, leavesPath(dir, 6), func(b []byte) []byte { b[40]++; return b })
		}, verdict.ErrLeaves, 0},
		"leaves removed": {func(t *testing.T, dir string) {
			check(t, os.Remove(leavesPath(dir, 6)))
		}, verdict.ErrLeaves, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := clone(t, run)
			c.tamper(t, dir)
			_, err := verifyDir(t, dir, k.trusted)
			wants(t, err, verdict.ErrDoesNotHold, c.finding, c.seq)
		})
	}
}

// replacePrev replaces prev in a manifest's text.
func replacePrev(text string) string {
	before, after, _ := strings.Cut(text, `"prev":"`)
	return before + `"prev":"` + strings.Repeat("ab", 32) + after[64:]
}

// TestFlipEveryByte flips each byte of a segment and of its manifest: a flip in the
// segment names the exact record, and every flip is detected.
func TestFlipEveryByte(t *testing.T) {
	k := newKey(t)
	run := newRun(t, k, "r-one")
	flip := func(path string, finding error, seq func(at int) uint64) {
		data, err := os.ReadFile(path)
		check(t, err)
		for at := range data {
			data[at] ^= 0x20
			check(t, os.WriteFile(path, data, 0o600))
			_, err := verifyDir(t, run, k.trusted)
			wants(t, err, verdict.ErrDoesNotHold, finding, seq(at))
			if t.Failed() {
				t.Fatalf("byte %d of %s", at, path)
			}
			data[at] ^= 0x20
		}
		check(t, os.WriteFile(path, data, 0o600))
	}
	data, err := os.ReadFile(segPath(run, 6))
	check(t, err)
	flip(segPath(run, 6), verdict.ErrAltered, func(at int) uint64 {
		seq := uint64(6)
		for _, f := range decode(t, data) {
			if at -= len(f.encode()); at < 0 {
				break
			}
			seq++
		}
		return seq
	})
	flip(leavesPath(run, 6), verdict.ErrLeaves, func(int) uint64 { return 0 })
	flip(manifestPath(run, 6), verdict.ErrForged, func(int) uint64 { return 0 })
	_, err = verifyDir(t, run, k.trusted)
	check(t, err)
}

func TestCannotBeJudged(t *testing.T) {
	k, other := newKey(t), newKey(t)
	t.Run("unknown key", func(t *testing.T) {
		_, err := verifyDir(t, newRun(t, other, "r-one"), k.trusted)
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrUnknownKey, 0)
	})
	t.Run("nothing there", func(t *testing.T) {
		_, err := verifyDir(t, t.TempDir(), k.trusted)
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrNoEvidence, 0)
	})
	t.Run("live", func(t *testing.T) {
		dir := t.TempDir() + "/r-live"
		l, err := wal.Create(dir, wal.Options{Run: "r-live", Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
		check(t, err)
		for range 3 {
			_, err := l.Append(t.Context(), output(t, "line"))
			check(t, err)
			_, err = verifyDir(t, dir, k.trusted)
			wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrLive, 0)
			check(t, l.Rotate(t.Context()))
		}
		report, err := verifyDir(t, dir, k.trusted)
		wants(t, err, verdict.ErrCannotBeJudged, verdict.ErrLive, 0)
		if report.HoldsTo != 3 {
			t.Errorf("holds to %d, want 3", report.HoldsTo)
		}
		check(t, l.Close(t.Context(), wal.Sealed))
		_, err = verifyDir(t, dir, k.trusted)
		check(t, err)
	})
	t.Run("cancelled", func(t *testing.T) {
		e, err := proof.OpenDir(newRun(t, k, "r-one"))
		check(t, err)
		defer e.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := proof.Verify(ctx, e, proof.Trust{Keys: k.trusted, Unlogged: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestSignedNonsense: Verify refuses invalid data with valid signatures of the host.
func TestSignedNonsense(t *testing.T) {
	k := newKey(t)
	rec := func(seq int, rest string) string {
		return fmt.Sprintf(`{"v":1,"run":"r-craft","seq":%d,"time":"2026-01-02T03:04:05Z","observer":"host",%s}`, seq, rest)
	}
	finding := `"kind":"finding","finding":{"rule":"x","detail":"y"}`
	gap := `"kind":"gap","gap":{"stage":"wal","first":2,"last":3,"count":2,"cause":"full"}`
	lost := wal.Losses{"wal": {Gaps: 1, Events: 2}}
	none := func(*wal.Segment) {}
	for name, c := range map[string]struct {
		change  func(*wal.Segment)
		records []string
		finding error
		seq     uint64
	}{
		"fine":           {none, []string{rec(1, finding)}, nil, 0},
		"hole":           {func(s *wal.Segment) { s.Last = 4 }, []string{rec(1, finding), rec(4, finding)}, verdict.ErrHole, 2},
		"hole and gap":   {func(s *wal.Segment) { s.Last, s.Losses = 4, lost }, []string{rec(1, finding), rec(4, gap)}, nil, 0},
		"gap in silence": {func(s *wal.Segment) { s.Last = 4 }, []string{rec(1, finding), rec(4, gap)}, verdict.ErrContradiction, 0},
		"gap too small": {func(s *wal.Segment) { s.Last, s.Losses = 5, lost },
			[]string{rec(1, finding), rec(5, gap)}, verdict.ErrHole, 2},
		"no JSON":     {none, []string{rec(1, `"kind`)}, verdict.ErrUndecodable, 1},
		"seq again":   {none, []string{rec(1, finding), rec(1, finding+` `)}, verdict.ErrContradiction, 1},
		"wrong last":  {func(s *wal.Segment) { s.Last = 7 }, []string{rec(1, finding)}, verdict.ErrContradiction, 0},
		"wrong bytes": {func(s *wal.Segment) { s.Bytes++ }, []string{rec(1, finding)}, verdict.ErrContradiction, 0},
		"wrong count": {func(s *wal.Segment) { s.Count++ }, []string{rec(1, finding)}, verdict.ErrLeaves, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifyDir(t, craft(t, k, c.change, c.records...), k.trusted)
			if c.finding == nil {
				check(t, err)
				return
			}
			wants(t, err, verdict.ErrDoesNotHold, c.finding, c.seq)
		})
	}
}
