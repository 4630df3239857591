package docs_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// earlier is a checkpoint over the first entries of a log, and the proof that the log went on from it.
func earlier(log *tree, signer hostkey.Key, size int, by ...note.Signer) (checkpoint []byte, path []string) {
	old := &tree{signer: signer}
	for _, e := range log.entries[:min(size, len(log.entries))] {
		old.add(e)
	}
	for range size - len(log.entries) {
		old.add([]byte("more"))
	}
	if size > 0 && size < len(log.entries) {
		for _, h := range must(log.Consistency(context.Background(), uint64(size), uint64(len(log.entries)))) {
			path = append(path, base64.StdEncoding.EncodeToString(h[:]))
		}
	}
	return bytes.Clone(old.publish(by...)), path
}

// witnessedFile is an earlier checkpoint as a bundle has it.
func witnessedFile(checkpoint []byte, path []string) []byte {
	var lines strings.Builder
	for _, p := range path {
		lines.WriteString(p + "\n")
	}
	return append([]byte("custody witnessed v1\n"+lines.String()+"\n"), checkpoint...)
}

// TestRedoWitnessed: all agree on the earlier checkpoints of a bundle that the holder of the key wrote. The bundle's own
// checkpoint was cosigned a year after the run.
func TestRedoWitnessed(t *testing.T) {
	t.Parallel()
	j := newJudges(t)
	key, twin := signerOf(t, "custody"), signerOf(t, "custody")
	w1, w2, other := prooftest.NewWitness(t, "w1"), prooftest.NewWitness(t, "w2"), prooftest.NewWitness(t, "w3")
	sealed := time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	soon, late := sealed.Add(time.Minute), sealed.AddDate(1, 0, 0)
	const first, second = "00000000000000000001.witnessed", "00000000000000000003.witnessed"
	type files = map[string][]byte
	good := func(f files, log *tree) {
		cp, path := earlier(log, key, 3, w1.On(soon), w2.On(soon))
		f[first], f[second] = witnessedFile(cp, path), witnessedFile(cp, path)
	}
	with := func(size int, signer hostkey.Key, by ...note.Signer) func(files, *tree) {
		return func(f files, log *tree) {
			cp, path := earlier(log, signer, size, by...)
			f[first], f[second] = witnessedFile(cp, path), witnessedFile(cp, path)
		}
	}
	change := func(from, to string) func(files, *tree) {
		return func(f files, log *tree) {
			good(f, log)
			f[second] = []byte(strings.Replace(string(f[second]), from, to, 1))
		}
	}
	for title, c := range map[string]struct {
		files func(files, *tree)
		want  int
	}{
		"none":                     {func(files, *tree) {}, 1},
		"of both":                  {good, 0},
		"of the first alone":       {func(f files, log *tree) { good(f, log); delete(f, second) }, 0},
		"of the second alone":      {func(f files, log *tree) { good(f, log); delete(f, first) }, 0},
		"of no manifest":           {func(f files, log *tree) { good(f, log); f["00000000000000000002.witnessed"] = f[first] }, 1},
		"one witness":              {with(3, key, w1.On(soon)), 0},
		"one late":                 {with(3, key, w1.On(soon), w2.On(late)), 0},
		"both late":                {with(3, key, w1.On(late), w2.On(late)), 1},
		"an unknown witness":       {with(3, key, other.On(soon)), 1},
		"no witness":               {with(3, key), 1},
		"a witness twice":          {with(3, key, w1.On(late), w1.On(soon)), 1},
		"before the first entry":   {with(0, key, w1.On(soon), w2.On(soon)), 1},
		"does not cover them":      {with(1, key, w1.On(soon), w2.On(soon)), 1},
		"covers the first":         {with(2, key, w1.On(soon), w2.On(soon)), 1},
		"as large as the log":      {with(5, key, w1.On(soon), w2.On(soon)), 0},
		"larger than the log":      {with(6, key, w1.On(soon), w2.On(soon)), 1},
		"signed by a twin":         {with(3, twin, w1.On(soon), w2.On(soon)), 1},
		"cosigned before the seal": {with(3, key, w1.On(sealed.Add(-time.Hour)), w2.On(soon)), 0},
		"cosigned in 1970":         {with(3, key, w1.On(time.Unix(0, 0)), w2.On(time.Unix(0, 0))), 0},
		"another history": {func(f files, log *tree) {
			fork := &tree{}
			for _, e := range log.entries {
				fork.add(append([]byte("x"), e...))
			}
			cp, _ := earlier(fork, key, 3, w1.On(soon), w2.On(soon))
			_, path := earlier(log, key, 3)
			f[first], f[second] = witnessedFile(cp, path), witnessedFile(cp, path)
		}, 1},
		"the cosignature of another checkpoint": {func(f files, log *tree) {
			cp, path := earlier(log, key, 3)
			of, _ := earlier(log, key, 2, w1.On(soon))
			lines := strings.SplitAfter(string(of), "\n")
			f[first] = witnessedFile(append(cp, lines[len(lines)-2]...), path)
			f[second] = f[first]
		}, 1},
		"the witness before the host": {func(f files, log *tree) {
			good(f, log)
			i := strings.LastIndex(string(f[second]), "\n\n")
			lines := strings.SplitAfter(strings.TrimSuffix(string(f[second][i+2:]), "\n"), "\n")
			lines[len(lines)-1] += "\n"
			f[second] = []byte(string(f[second][:i+2]) + lines[1] + lines[0] + lines[2])
		}, 0},
		"the host's signature is missing": {func(f files, log *tree) {
			good(f, log)
			i := strings.LastIndex(string(f[second]), "\n\n")
			lines := strings.SplitAfter(string(f[second][i+2:]), "\n")
			f[second] = []byte(string(f[second][:i+2]) + strings.Join(lines[1:], ""))
		}, 1},
		"a hash more": {func(f files, log *tree) {
			good(f, log)
			f[second] = bytes.Replace(f[second], []byte("v1\n"), []byte("v1\n"+strings.Repeat("A", 43)+"=\n"), 1)
		}, 1},
		"a hash that is short": {func(f files, log *tree) {
			good(f, log)
			f[second] = bytes.Replace(f[second], []byte("v1\n"), []byte("v1\nAAAA\n"), 1)
		}, 1},
		"another version":      {change("witnessed v1", "witnessed v2"), 1},
		"an empty line more":   {change("v1\n", "v1\n\n"), 1},
		"CRLF":                 {change("v1\n", "v1\r\n"), 1},
		"nothing behind it":    {func(f files, log *tree) { good(f, log); f[second] = []byte("custody witnessed v1\n\n") }, 1},
		"an empty file":        {func(f files, log *tree) { good(f, log); f[second] = []byte{} }, 1},
		"text behind it":       {func(f files, log *tree) { good(f, log); f[second] = append(f[second], "x\n"...) }, 1},
		"the size with a zero": {change("\n3\n", "\n03\n"), 1},
		"the consistency of another size": {func(f files, log *tree) {
			cp, _ := earlier(log, key, 3, w1.On(soon), w2.On(soon))
			_, path := earlier(log, key, 4)
			f[first], f[second] = witnessedFile(cp, path), witnessedFile(cp, path)
		}, 1},
	} {
		r := plainRun(key)
		r.notes = map[string]string{}
		r.log = [][]byte{statement.ManifestLeaf("r-0", 0, merkle.Hash{})}
		r.cosign = []note.Signer{w1.On(late), w2.On(late)}
		r.files = c.files
		r.more = [][]byte{statement.ManifestLeaf("r-2", 0, merkle.Hash{}), statement.ManifestLeaf("r-3", 0, merkle.Hash{})}
		data := r.pack(t)
		for _, quorum := range []int{1, 2} {
			trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Witnesses: []note.Verifier{w1, w2}, Quorum: quorum}
			got, err := j.judge(fmt.Sprintf("%s, %d of 2", title, quorum), data, trust, "--key", key.Public, "--witness", w1.Key, "--witness", w2.Key, "--quorum", fmt.Sprint(quorum))
			want := c.want
			if quorum == 2 && (title == "one witness" || title == "one late") {
				want = 1
			}
			if got != want {
				t.Errorf("%s, %d of 2: verify: %d, %v; want %d", title, quorum, got, err, want)
			}
		}
	}
}
