package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/internal/sampleruns"
	"github.com/custody-project/custody/store/storetest"
)

// TestBundleAfterRotation: a bundle names the key that signed its run, not the one in use, in its host.pub and in what the
// command says; it verifies with that key, and with no later one.
func TestBundleAfterRotation(t *testing.T) {
	r := newRecorded(t, "")
	record := func(after time.Duration) string {
		t.Helper()
		id := host.NewRunID(storetest.Start().Add(after))
		run := r.begin(id)
		if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
			t.Fatal(record, stored)
		}
		if err := r.home.Shipping().Ship(t.Context(), false, func(string) {}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	var keys, runs []string
	for i := range 3 {
		if i > 0 {
			if _, err := r.home.Keys().Rotate(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		key, err := r.home.Keys().Public()
		if err != nil {
			t.Fatal(err)
		}
		keys, runs = append(keys, key), append(runs, record(time.Duration(i)*time.Minute))
	}
	says := func(c interface{ Run(*app) error }) (int, string) {
		var out strings.Builder
		a := newApp(t.Context(), nil, &out, &out)
		return a.code(c.Run(a)), out.String()
	}
	for i, run := range runs {
		for _, c := range []bundleCmd{{Name: run}, {Name: run, Records: []string{"3-5"}}} {
			c.Out = filepath.Join(t.TempDir(), "b.tar")
			code, text := says(c)
			if code != 0 || !strings.Contains(text, keys[i]) || strings.Contains(text, "retired") != (i < 2) {
				t.Errorf("bundle of run %d exits %d and says %s, want the key %s", i, code, text, keys[i])
			}
			data, err := os.ReadFile(c.Out)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(prooftest.Unpack(t, data)[hostkey.PublicFile]); got != keys[i]+"\n" {
				t.Errorf("bundle of run %d has the key %s, want %s", i, got, keys[i])
			}
			for j, key := range keys {
				want, word := 0, "verified"
				if j > i { // a later key does not speak for an earlier one
					want, word = 2, "signed by a key that is not trusted here"
				}
				if code, text := says(verifyCmd{What: c.Out, Key: []string{key}, Within: 24 * time.Hour}); code != want || !strings.Contains(text, word) {
					t.Errorf("run %d with key %d: verify exits %d, want %d and %q: %s", i, j, code, want, word, text)
				}
			}
			if out, err := exec.Command("python3", "../../docs/verify.py", c.Out, "--key", keys[i]).CombinedOutput(); err != nil {
				t.Errorf("run %d: verify.py: %v: %s", i, err, out)
			}
			if code, text := says(verifyCmd{What: c.Out, Within: 24 * time.Hour}); code != 0 {
				t.Errorf("run %d on its host: verify exits %d: %s", i, code, text)
			}
		}
	}
	_, text := says(keyShowCmd{})
	for _, key := range keys {
		if !strings.Contains(text, key) {
			t.Errorf("key show does not list %s: %s", key, text)
		}
	}
}

// TestReportAfterRotation: a report that was made after a rotation verifies with the old key, through the bundles beside
// it, as bundles do. Who stole the old key gains nothing by signing a rotation of his own: it contradicts the host's.
func TestReportAfterRotation(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.home = t.TempDir()
	key := func(name string) string {
		d.write(filepath.Join(d.dir, name), d.must(0, "key", "show").stdout)
		return name
	}
	sampleruns.Record(t, d.home, sampleruns.Review())
	first, old := d.runs()[0].ID, key("old.pub")
	stolen := t.TempDir()
	if err := errors.Join(os.CopyFS(stolen, os.DirFS(d.home)), os.Chmod(filepath.Join(stolen, "keys", "host.key"), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.must(0, "report", "-f", "soc2", first, "-o", "before")
	d.contains(d.must(0, "key", "rotate").stderr, "verify only with the old key", "stolen")
	next := key("new.pub")
	sampleruns.Record(t, d.home, sampleruns.Review())
	second := d.runs()[0].ID
	d.must(0, "report", "-f", "soc2", first, "-o", "of-first")
	oldKey, err := os.ReadFile(filepath.Join(d.dir, old))
	if err != nil {
		t.Fatal(err)
	}
	hint := "with a second --key: " + string(oldKey)
	if s := d.must(0, "report", "-f", "soc2", second, "-o", "of-second"); strings.Contains(s.stderr, "second --key") {
		t.Errorf("a key that signed none of the runs is named: %s", s.stderr)
	}
	d.contains(d.must(0, "report", "-f", "soc2", first, second, "-o", "of-both").stderr, hint)
	for dir, codes := range map[string][2]int{"before": {0, 2}, "of-first": {0, 2}, "of-second": {0, 0}, "of-both": {0, 2}} {
		for i, pinned := range [][]string{{"--key", old}, {"--key", next}} {
			d.contains(d.must(codes[i], append([]string{"verify", dir}, pinned...)...).stdout, []string{"verified", "", "CANNOT BE JUDGED"}[codes[i]])
		}
		d.must(0, "verify", dir, "--key", old, "--key", next)
		bundles, _ := filepath.Glob(filepath.Join(d.dir, dir, "r-*.tar"))
		for _, bundle := range bundles {
			d.must(0, "verify", bundle, "--key", old)
			if out, err := exec.Command("python3", "../../docs/verify.py", bundle, "--key", filepath.Join(d.dir, old)).CombinedOutput(); err != nil {
				t.Errorf("verify.py %s: %v: %s", bundle, err, out)
			}
		}
	}

	thief := *d
	thief.home = stolen
	thief.must(0, "key", "rotate")
	sampleruns.Record(t, stolen, sampleruns.Review())
	theirs := thief.runs()[0].ID
	thief.must(0, "report", "-f", "soc2", first, theirs, "-o", "forged")
	d.must(2, "verify", "forged", "--key", next)
	if err := os.Rename(filepath.Join(d.dir, "of-first", first+".tar"), filepath.Join(d.dir, "forged", first+".tar")); err != nil {
		t.Fatal(err)
	}
	got := d.must(1, "verify", "forged", "--key", old)
	d.contains(got.stdout+got.stderr, "DOES NOT HOLD", "is followed by")
	if err := os.Remove(filepath.Join(d.dir, "of-both", second+".tar")); err != nil { // without a bundle that leads there
		t.Fatal(err)
	}
	d.must(2, "verify", "of-both", "--key", old)
}
