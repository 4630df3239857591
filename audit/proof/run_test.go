package proof_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key is a signing key and its verifier.
type key struct {
	signer  note.Signer
	public  string
	trusted note.Verifiers
}

func newKey(t testing.TB) key { return newKeyNamed(t, "custody-test") }

func newKeyNamed(t testing.TB, name string) key {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	check(t, err)
	signer, err := note.NewSigner(skey)
	check(t, err)
	verifier, err := note.NewVerifier(vkey)
	check(t, err)
	return key{signer, vkey, note.VerifierList(verifier)}
}

var facts = statement.Facts{PolicyDigest: "sha256:aa", RulesetDigest: "sha256:bb", TemplateDigest: "sha256:cc", Tier: "qemu-tcg"}

var red = redact.New([]byte("0123456789abcdef0123456789abcdef"))

func output(t testing.TB, text string) redact.Sealed {
	t.Helper()
	return outputAt(t, time.Now().UTC(), text)
}

func outputAt(t testing.TB, at time.Time, text string) redact.Sealed {
	t.Helper()
	s, err := red.Seal(&audit.Event{
		Time: at, Observer: audit.Guest, Kind: audit.KindOutput,
		Output: &audit.Output{Stream: "stdout", Text: audit.Text(text)},
	})
	check(t, err)
	return s
}

// newRun writes a closed run of three segments with five records each: seqs 1
// to 5, 6 to 10 and 11 to 15.
func newRun(t testing.TB, k key, run string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), run)
	ctx := context.Background()
	l, err := wal.Create(dir, wal.Options{Run: run, Sealer: statement.NewSealer(k.signer, facts), SegmentAge: time.Hour})
	check(t, err)
	for seq := 1; seq <= 15; seq++ {
		_, err := l.Append(ctx, output(t, fmt.Sprintf("line %d\n", seq)))
		check(t, err)
		if seq == 5 || seq == 10 {
			check(t, l.Rotate(ctx))
		}
	}
	check(t, l.Close(ctx, wal.Sealed))
	return dir
}

func clone(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	check(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func verifyDir(t testing.TB, dir string, trusted note.Verifiers) (proof.Report, error) {
	t.Helper()
	e, err := proof.OpenDir(dir)
	check(t, err)
	defer e.Close()
	return proof.Verify(context.Background(), e, proof.Trust{Keys: trusted, Unlogged: true})
}

// wants fails unless err has the outcome, the finding and the seq.
func wants(t testing.TB, err, outcome, finding error, seq uint64) {
	t.Helper()
	var v *verdict.Verdict
	switch {
	case !errors.As(err, &v):
		t.Errorf("got %v, want a verdict: %v", err, finding)
	case !errors.Is(err, outcome) || !errors.Is(err, finding):
		t.Errorf("got %q (%v), want %q", err, v.Outcome, finding)
	case v.Seq != seq:
		t.Errorf("%q names seq %d, want %d", err, v.Seq, seq)
	}
}

// frame encodes a frame as package wal documents it, without its code.
type frame struct {
	salt   [16]byte
	record []byte
}

func (f frame) encode() []byte {
	body := append(append([]byte{0}, f.salt[:]...), f.record...)
	b := binary.LittleEndian.AppendUint32([]byte("CWF1"), uint32(len(f.record)))
	sum := crc32.Checksum(append(bytes.Clone(b[4:8]), body...), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.LittleEndian.AppendUint32(b, sum), body...)
}

func encode(frames []frame) (b []byte) {
	for _, f := range frames {
		b = append(b, f.encode()...)
	}
	return b
}

func decode(t testing.TB, data []byte) (frames []frame) {
	t.Helper()
	for len(data) > 0 {
		n := 29 + binary.LittleEndian.Uint32(data[4:])
		frames = append(frames, frame{[16]byte(data[13:29]), data[29:n]})
		data = data[n:]
	}
	return frames
}

func segPath(dir string, first uint64) string {
	return filepath.Join(dir, wal.FileName(first, wal.SegmentSuffix))
}

func leavesPath(dir string, first uint64) string {
	return filepath.Join(dir, wal.FileName(first, wal.LeavesSuffix))
}

func manifestPath(dir string, first uint64) string {
	return filepath.Join(dir, wal.FileName(first, wal.ManifestSuffix))
}

// edit rewrites a file.
func edit(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, change(data), 0o600))
}

// reframe rewrites a segment's frames, with correct checksums.
func reframe(t testing.TB, path string, change func([]frame) []frame) {
	t.Helper()
	edit(t, path, func(b []byte) []byte { return encode(change(decode(t, b))) })
}

func swap(t testing.TB, a, b string) {
	t.Helper()
	check(t, os.Rename(a, a+"~"))
	check(t, os.Rename(b, a))
	check(t, os.Rename(a+"~", b))
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	check(t, err)
	check(t, os.WriteFile(to, data, 0o600))
}

// resign changes a manifest's text and signs it with k.
func resign(t testing.TB, path string, k key, change func(string) string) {
	t.Helper()
	edit(t, path, func(b []byte) []byte {
		text, _, _ := bytes.Cut(b, []byte("\n\n"))
		out, err := note.Sign(&note.Note{Text: change(string(text) + "\n")}, k.signer)
		check(t, err)
		return out
	})
}

// craft writes a run as a host that signs invalid data would: one segment of the given records.
func craft(t testing.TB, k key, change func(*wal.Segment), records ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := wal.Segment{Run: "r-craft", First: 1, Last: uint64(len(records)), Count: uint64(len(records)), Closing: wal.Sealed, Losses: wal.Losses{}}
	var data []byte
	for _, r := range records {
		f := frame{record: []byte(r)}
		s.Leaves = append(s.Leaves, merkle.LeafHash(f.salt, f.record))
		data = append(data, f.encode()...)
	}
	s.Bytes = int64(len(data))
	change(&s)
	leaves, manifest, err := statement.NewSealer(k.signer, facts).Seal(s)
	check(t, err)
	check(t, os.WriteFile(segPath(dir, s.First), data, 0o600))
	check(t, os.WriteFile(leavesPath(dir, s.First), leaves, 0o600))
	check(t, os.WriteFile(manifestPath(dir, s.First), manifest, 0o600))
	return dir
}

// sumOf returns the checksum field of a frame.
func sumOf(frame []byte) []byte {
	sum := crc32.Checksum(append(bytes.Clone(frame[4:8]), frame[12:]...), crc32.MakeTable(crc32.Castagnoli))
	return binary.LittleEndian.AppendUint32(nil, sum)
}
