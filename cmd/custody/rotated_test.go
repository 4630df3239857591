package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/store/storetest"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/home"
)

// TestBundleAfterRotation: a bundle names the key that signed its run, not the one in use, in its host.pub and in what the
// command says; it verifies with that key, and with no later one.
func TestBundleAfterRotation(t *testing.T) {
	r := newRecorded(t, "")
	record := func(after time.Duration) string {
		t.Helper()
		id := home.NewRunID(storetest.Start().Add(after))
		run := r.begin(id)
		if record, stored := run.Close(t.Context(), wal.Sealed); record != nil || stored != nil {
			t.Fatal(record, stored)
		}
		if err := r.home.Ship(t.Context(), false, func(string) {}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	var keys, runs []string
	for i := range 3 {
		if i > 0 {
			if _, err := r.home.RotateKey(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		key, err := r.home.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		keys, runs = append(keys, key), append(runs, record(time.Duration(i)*time.Minute))
	}
	says := func(c interface{ Run(*app) error }) (int, string) {
		var out strings.Builder
		a := &app{ctx: t.Context(), stdout: &out, stderr: &out}
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
			if got := string(prooftest.Unpack(t, data)[proof.PublicFile]); got != keys[i]+"\n" {
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
