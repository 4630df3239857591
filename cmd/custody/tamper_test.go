package main

import (
	"bytes"
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/wal"
)

// record files of a run, by name.
type evidence map[string][]byte

func (d *door) evidence(run string) evidence {
	d.Helper()
	e := evidence{}
	paths, err := filepath.Glob(filepath.Join(d.home, "runs", run, "0*"))
	if err != nil || len(paths) == 0 {
		d.Fatal("no record files of ", run, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			d.Fatal(err)
		}
		e[filepath.Base(path)] = b
	}
	return e
}

// put replaces a run's record files by exactly these.
func (d *door) put(run string, e evidence) {
	d.Helper()
	dir := filepath.Join(d.home, "runs", run)
	old, _ := filepath.Glob(filepath.Join(dir, "0*"))
	for _, path := range old {
		os.Remove(path)
	}
	for name, b := range e {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			d.Fatal(err)
		}
	}
}

// pack writes the files as a bundle, with the other files of the run's bundle.
func (d *door) pack(run string, e evidence) string {
	d.Helper()
	real := filepath.Join(d.dir, "real.bundle")
	d.must(0, "bundle", run, "-o", real)
	data, err := os.ReadFile(real)
	if err != nil {
		d.Fatal(err)
	}
	all := prooftest.Bundle(maps.Clone(e))
	for name, b := range prooftest.Unpack(d, data) {
		if ext := filepath.Ext(name); ext != wal.SegmentSuffix && ext != wal.LeavesSuffix && ext != wal.ManifestSuffix {
			all[name] = b
		}
	}
	path := filepath.Join(d.dir, "tampered.bundle")
	d.write(path, string(all.Pack(d)))
	return path
}

// names returns the files with this ending, in order.
func (e evidence) names(suffix string) []string {
	var names []string
	for name := range e {
		if strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// frames returns the encoded frames of a segment.
func frames(segment []byte) [][]byte {
	var all [][]byte
	for r := wal.NewReader("", bytes.NewReader(segment)); ; {
		f, err := r.Next()
		if err != nil {
			return all
		}
		all = append(all, segment[f.Offset:f.Offset+f.Size()])
	}
}

// TestTampering changes a real run's record in every way and reads verify's
// answer, of the log and of a bundle of it, here and with nothing but the public key.
func TestTampering(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.script(0, "echo one; sleep 1.2; echo two; sleep 1.2; echo three")
	run := d.runs()[0].ID
	d.verified(run)
	whole := d.evidence(run)
	segments, manifests, leaves := whole.names(wal.SegmentSuffix), whole.names(wal.ManifestSuffix), whole.names(wal.LeavesSuffix)
	if len(segments) < 2 || len(manifests) < 2 {
		t.Fatalf("too few segments to tamper with: %v", segments)
	}
	seg, last := segments[0], manifests[len(manifests)-1]
	part := frames(whole[seg])
	if len(part) < 3 {
		t.Fatalf("%d records in %s", len(part), seg)
	}
	swap := slices.Clone(part)
	swap[1], swap[2] = swap[2], swap[1]
	join := func(list ...[]byte) []byte { return bytes.Join(list, nil) }
	text := bytes.Replace(part[1], []byte(`"op":"restore"`), []byte(`"op":"destroy"`), 1)

	cases := []struct {
		name   string
		change func(evidence)
		says   string
	}{
		{"a byte of a record", func(e evidence) { e[seg] = flip(e[seg], len(part[0])+60) }, "record altered: seq 2"},
		{"a word of a record", func(e evidence) { e[seg] = join(part[0], text, join(part[2:]...)) }, "record altered: seq 2"},
		{"a byte of a manifest", func(e evidence) { e[last] = flip(e[last], 20) }, "manifest forged"},
		{"a byte of a signature", func(e evidence) { e[last] = flip(e[last], len(e[last])-10) }, "manifest forged"},
		{"a byte of the leaves", func(e evidence) { e[leaves[0]] = flip(e[leaves[0]], 40) }, "leaf hashes altered"},
		{"no leaves", func(e evidence) { delete(e, leaves[0]) }, "leaf hashes altered or missing"},
		{"a record dropped", func(e evidence) { e[seg] = join(part[0], join(part[2:]...)) }, "record missing: seq 2"},
		{"the last record dropped", func(e evidence) { e[seg] = join(part[:len(part)-1]...) }, "record missing"},
		{"a record doubled", func(e evidence) { e[seg] = join(part[0], part[1], part[1], join(part[2:]...)) }, "record duplicated: seq 2"},
		{"records swapped", func(e evidence) { e[seg] = join(swap...) }, "records reordered"},
		{"a record appended", func(e evidence) { e[seg] = join(join(part...), part[0]) }, "record "},
		{"a segment dropped", func(e evidence) { delete(e, seg) }, "segment missing: seq 1"},
		{"a segment and all of it dropped", func(e evidence) { delete(e, seg); delete(e, manifests[0]); delete(e, leaves[0]) }, "manifest"},
		{"the closing manifest dropped", func(e evidence) { delete(e, last) }, "tail cut"},
		{"the tail cut", func(e evidence) {
			delete(e, last)
			delete(e, segments[len(segments)-1])
			delete(e, leaves[len(leaves)-1])
		}, "tail cut"},
		{"a first manifest dropped", func(e evidence) { delete(e, manifests[0]) }, "manifest"},
		{"manifests exchanged", func(e evidence) { e[manifests[0]], e[manifests[1]] = e[manifests[1]], e[manifests[0]] }, "manifest out of chain"},
		{"a manifest by another hand", func(e evidence) { e[last] = d.forge(e[last]) }, "manifest forged"},
	}
	elsewhere := newDoor(t)
	key := filepath.Join(d.home, "keys", hostkey.PublicFile)
	for _, c := range cases {
		e := maps.Clone(whole)
		c.change(e)
		bundle := d.pack(run, e)
		d.put(run, e)
		for _, s := range []said{
			d.custody("verify", run), d.custody("verify", bundle), elsewhere.custody("verify", bundle, "--key", key),
		} {
			if s.code != 1 || !strings.Contains(s.stderr, "custody: "+c.says) {
				t.Errorf("%s: exit code %d, want %q: %s%s", c.name, s.code, c.says, s.stdout, s.stderr)
			}
			d.contains(s.stdout, "DOES NOT HOLD")
		}
		d.put(run, whole)
	}
	d.verified(run)

	t.Run("without the key", func(t *testing.T) {
		bundle := d.pack(run, whole)
		d.must(0, "verify", bundle)
		elsewhere.must(0, "verify", bundle, "--key", key)
		s := elsewhere.must(2, "verify", bundle)
		d.contains(s.stdout, "CANNOT BE JUDGED")
		d.contains(s.stderr, "custody: signed by a key that is not trusted here", "custody: hint: ")
		d.must(1, "verify", filepath.Join(d.bin, "custody"))
	})
	t.Run("the store", func(t *testing.T) { d.tamperStore(t, run) })
}

func flip(b []byte, at int) []byte {
	b = slices.Clone(b)
	b[at] ^= 1
	return b
}

// forge signs a manifest's text with a key of the same name that is not the host's.
func (d *door) forge(manifest []byte) []byte {
	d.Helper()
	thief := newDoor(d.T)
	thief.script(0, "true")
	run := thief.runs()[0].ID
	forged := thief.evidence(run)
	return forged[forged.names(wal.ManifestSuffix)[0]]
}

// tamperStore changes rows with another program. The log shows it; a rebuilt store is correct again.
func (d *door) tamperStore(t *testing.T, run string) {
	for _, c := range []struct{ name, sql, says string }{
		{"a body", `UPDATE records SET body = replace(body, '"op":"restore"', '"op":"reboot!"') WHERE seq = 2`, "seq 2: the record is altered in the store"},
		{"a row away", `DELETE FROM records WHERE seq = 2`, "seq 2: the record is missing from the store"},
		{"a summary", `UPDATE runs SET exit_code = 77`, "the run's summary"},
	} {
		d.sqlite(c.sql)
		s := d.must(1, "verify", run)
		d.contains(s.stderr, c.says)
		d.contains(d.must(0, "rebuild").stderr, "the store was rebuilt")
		d.verified(run)
	}
	d.write(filepath.Join(d.home, "custody.db"), strings.Repeat("not a database. ", 1000))
	os.Remove(filepath.Join(d.home, "custody.db-wal"))
	os.Remove(filepath.Join(d.home, "custody.db-shm"))
	s := d.must(exitFailed, "timeline", run)
	d.contains(s.stderr, "is damaged", "custody: hint: no record is lost")
	d.must(0, "rebuild")
	d.verified(run)
	if len(d.runs()) != 1 {
		t.Error("the rebuilt store lacks the run")
	}
}

// A live run is not broken: verify never reports it as such, not even at the moment of its end.
func TestVerifyLive(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	cmd := d.command("run", "-q", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.5; done")
	var out screen
	cmd.Stdout = &out
	d.start(cmd)
	follow := d.command("timeline", "last", "--follow")
	var followed screen
	follow.Stdout = &followed
	out.await(t, "1\n")
	eventually(t, "in the store: the run's first segment", func() bool { return len(d.runs()) == 1 })
	d.start(follow)
	codes := map[int]int{}
	for codes[0] == 0 {
		s := d.custody("verify", "last")
		codes[s.code]++
		// Between its last record and the checkpoint over that, a run is not live and cannot be judged either.
		waits := strings.Contains(s.stderr, "the run is live") || strings.Contains(s.stderr, "is not under a checkpoint of the host's log yet")
		if s.code == 1 || s.code == exitFailed || s.code == 2 && !waits {
			t.Fatalf("verify of a live run exits %d: %s%s", s.code, s.stdout, s.stderr)
		}
	}
	if codes[2] == 0 {
		t.Error("the run was never seen live")
	}
	cmd.Wait()
	follow.Wait()
	d.contains(followed.String(), "| 1", "| 9", "run ended: done")
	d.contains(d.must(exitFailed, "bundle", "nope", "-o", "x").stderr, "custody: nope")
}

// sqlite changes the store with another program.
func (d *door) sqlite(stated string) {
	d.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(d.home, "custody.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		d.Fatal(err)
	}
	if _, err := db.Exec(stated); err != nil {
		d.Fatalf("%s: %v", stated, err)
	}
	if err := db.Close(); err != nil {
		d.Fatal(err)
	}
}
