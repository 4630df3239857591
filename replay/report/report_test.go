package report

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// made is when the reports of these tests are made.
var made = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// bundled is a run whose record is in testdata, bundled and verified. The records are of real runs: egress
// and agent are those of examples, secret prints its token, long lives longer than 60 s, and
// interrupted is of a custody that was killed. With change, the bundle's files are changed before.
func bundled(t testing.TB, name string, change func(dir string)) Run {
	t.Helper()
	dir := t.TempDir()
	unpack(t, filepath.Join("testdata", name+".zip"), dir)
	if change != nil {
		change(dir)
	}
	rows := rowsOf(t, dir)
	return Run{Run: summary(rows), Rows: asRows(rows), Verification: verify(t, pack(t, dir))}
}

func summary(rows []store.Row) store.Run {
	run := store.NewRun(rows[0].Run)
	run.Host = "custody-vm"
	for _, r := range rows {
		run.Add(r.Head)
	}
	return run
}

func unpack(t testing.TB, file, dir string) {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if err := os.CopyFS(dir, z); err != nil {
		t.Fatal(err)
	}
}

// packer signs the bundles of these tests: the key of the host that made the records is gone.
var packer, packerKey = func() (note.Signer, note.Verifier) {
	private, public, err := note.GenerateKey(rand.Reader, "packer")
	s, serr := note.NewSigner(private)
	v, verr := note.NewVerifier(public)
	if err := errors.Join(err, serr, verr); err != nil {
		panic(err)
	}
	return s, v
}()

func pack(t testing.TB, dir string) string {
	t.Helper()
	b := prooftest.Bundle{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b[strings.TrimPrefix(path, dir+"/")], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar")
	write(t, file, b.Seal(t, packer).Pack(t))
	return file
}

func rowsOf(t testing.TB, dir string) []store.Row {
	t.Helper()
	files, err := wal.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rows []store.Row
	for _, file := range files {
		for f, err := range wal.ReadSegment(file) {
			if err != nil {
				t.Fatal(err)
			}
			head, err := store.ParseHead(f.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, store.Row{Head: head, Body: slices.Clone(f.Bytes), Salt: f.Salt})
		}
	}
	return rows
}

func asRows(rows []store.Row) replay.Rows {
	return func(yield func(store.Row, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func verify(t testing.TB, bundle string) Verification {
	t.Helper()
	key, err := os.ReadFile("testdata/host.pub")
	if err != nil {
		t.Fatal(err)
	}
	v, err := note.NewVerifier(strings.TrimSpace(string(key)))
	if err != nil {
		t.Fatal(err)
	}
	e, err := proof.OpenBundle(bundle)
	if err != nil {
		return Verified(proof.Report{}, err, made)
	}
	defer e.Close()
	r, err := proof.Verify(t.Context(), e, proof.Trust{Keys: note.VerifierList(v, packerKey)})
	return Verified(r, err, made)
}

func input(framework string, runs ...Run) Input {
	return Input{Framework: framework, Runs: runs, Generated: made, Version: "test"}
}

func build(t testing.TB, in Input) *Report {
	t.Helper()
	r, err := Build(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func contents(t testing.TB, r *Report) (html, json string) {
	t.Helper()
	list, err := r.Files()
	if err != nil {
		t.Fatal(err)
	}
	return string(list[0].Bytes), string(list[1].Bytes)
}

// TestGolden: a report of real runs, as it was looked at by eye, and what all maps say of them.
func TestGolden(t *testing.T) {
	html, json := contents(t, build(t, input("euaiact", bundled(t, "long", nil), bundled(t, "interrupted", nil))))
	golden(t, "euaiact.html", html)
	golden(t, "euaiact.json", json)
	var all strings.Builder
	runs := []Run{bundled(t, "agent", nil), bundled(t, "egress", nil), bundled(t, "secret", nil)}
	for _, f := range Frameworks() {
		r := build(t, input(f.ID, runs...))
		fmt.Fprintf(&all, "%s: %+v\n", f.Title, r.Tally)
		for _, c := range r.Controls {
			fmt.Fprintf(&all, "\n%s %s: %s\n", c.ID, c.Title, c.Status)
			for _, claim := range c.Claims {
				fmt.Fprintf(&all, "  %s: %s (%s) [%d of %d]\n", claim.Status, claim.Text, claim.Basis, len(claim.Refs), claim.Total)
			}
		}
		fmt.Fprintf(&all, "\nlimits:\n  %s\n\n", strings.Join(r.Limits, "\n  "))
	}
	golden(t, "claims.txt", all.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("differs from testdata/%s (go test -update writes it anew)", name)
	}
}

// TestSame: the same runs give the same bytes, whatever their order.
func TestSame(t *testing.T) {
	a, b := bundled(t, "agent", nil), bundled(t, "egress", nil)
	html, json := contents(t, build(t, input("gdpr", a, b)))
	for range 5 {
		again, data := contents(t, build(t, input("gdpr", b, a, b)))
		if again != html || data != json {
			t.Fatal("another report")
		}
	}
}

// TestLeaves: the digest of a source is that of its bundle's leaves, which anyone can take.
func TestLeaves(t *testing.T) {
	r := build(t, input("soc2", bundled(t, "egress", nil)))
	z, err := zip.OpenReader("testdata/egress.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	all := sha256.New()
	var leaves []string
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, wal.LeavesSuffix) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
		for leaf := range slices.Chunk(b, 32) {
			leaves = append(leaves, hex.EncodeToString(leaf))
		}
	}
	if got := r.Sources[0].LeavesSHA256; got != hex.EncodeToString(all.Sum(nil)) {
		t.Errorf("leaves_sha256 is %s", got)
	}
	for _, rec := range r.Records {
		salt, err := hex.DecodeString(rec.Salt)
		if err != nil {
			t.Fatal(err)
		}
		leaf := sha256.Sum256(slices.Concat([]byte{0}, salt, []byte(rec.JSON)))
		if hex.EncodeToString(leaf[:]) != rec.Leaf || leaves[rec.Seq-1] != rec.Leaf {
			t.Errorf("record %d has the leaf %s", rec.Seq, rec.Leaf)
		}
	}
	if len(r.Records) == 0 {
		t.Error("it cites nothing")
	}
}

// TestRefs: each reference leads to a record of the input, which the report holds.
func TestRefs(t *testing.T) {
	for _, f := range Frameworks() {
		r := build(t, input(f.ID, bundled(t, "egress", nil), bundled(t, "agent", nil), bundled(t, "secret", nil), bundled(t, "long", nil), bundled(t, "interrupted", nil)))
		records := map[Ref]Record{}
		for _, rec := range r.Records {
			records[rec.Ref] = rec
			if !bytes.Contains([]byte(rec.JSON), []byte(`"run":"`+rec.Run+`"`)) {
				t.Errorf("%s: record %v has the JSON %s", f.ID, rec.Ref, rec.JSON)
			}
		}
		cited := 0
		for _, c := range r.Controls {
			for _, claim := range c.Claims {
				cited += len(claim.Refs)
				if uint64(len(claim.Refs)) > claim.Total {
					t.Errorf("%s %s %s: %d references for %d records", f.ID, c.ID, claim.Query, len(claim.Refs), claim.Total)
				}
				for _, ref := range claim.Refs {
					if _, ok := records[ref]; !ok {
						t.Errorf("%s %s %s: %v leads nowhere", f.ID, c.ID, claim.Query, ref)
					}
				}
			}
		}
		if cited < 20 {
			t.Errorf("%s cites %d records", f.ID, cited)
		}
	}
}
