package proof_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	tnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// treeLog is a host's log in memory, built on golang.org/x/mod/sumdb/tlog.
type treeLog struct {
	signer  note.Signer
	entries [][]byte
	hashes  []tlog.Hash
	last    []byte
}

// ReadHashes implements tlog.HashReader.
func (l *treeLog) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var all []tlog.Hash
	for _, i := range indexes {
		all = append(all, l.hashes[i])
	}
	return all, nil
}

func (l *treeLog) add(t testing.TB, entry []byte) {
	t.Helper()
	more, err := tlog.StoredHashes(int64(len(l.entries)), entry, l)
	check(t, err)
	l.hashes, l.entries = append(l.hashes, more...), append(l.entries, entry)
}

// publish signs the current tree.
func (l *treeLog) publish(t testing.TB, witnesses ...note.Signer) []byte {
	t.Helper()
	root, err := tlog.TreeHash(int64(len(l.entries)), l)
	check(t, err)
	text := fmt.Sprintf("%s\n%d\n%s\n", l.signer.Name(), len(l.entries), base64.StdEncoding.EncodeToString(root[:]))
	l.last, err = note.Sign(&note.Note{Text: text}, append([]note.Signer{l.signer}, witnesses...)...)
	check(t, err)
	return l.last
}

func (l *treeLog) Checkpoint(context.Context) ([]byte, error) {
	if l.last == nil {
		return nil, fs.ErrNotExist
	}
	return l.last, nil
}

func (l *treeLog) Index(_ context.Context, entry []byte) (uint64, error) {
	i := slices.IndexFunc(l.entries, func(e []byte) bool { return bytes.Equal(e, entry) })
	if i < 0 {
		return 0, fs.ErrNotExist
	}
	return uint64(i), nil
}

func (l *treeLog) Inclusion(_ context.Context, index, size uint64) ([]merkle.Hash, error) {
	p, err := tlog.ProveRecord(int64(size), int64(index), l)
	return hashesOf(p), err
}

func (l *treeLog) Consistency(_ context.Context, from, to uint64) ([]merkle.Hash, error) {
	if from == 0 || from == to {
		return nil, nil
	}
	p, err := tlog.ProveTree(int64(to), int64(from), l)
	return hashesOf(p), err
}

func hashesOf(p []tlog.Hash) (all []merkle.Hash) {
	for _, h := range p {
		all = append(all, merkle.Hash(h))
	}
	return all
}

// log adds the entries of a run's directory that the host's log lacks.
func (l *treeLog) log(t testing.TB, dir string) {
	t.Helper()
	for _, path := range glob(t, dir, wal.ManifestSuffix) {
		m, signed := manifestOf(t, path)
		l.addNew(t, statement.ManifestLeaf(m.Run, m.Segment, statement.Digest(signed)))
	}
	for _, path := range glob(t, dir, statement.ErasureSuffix) {
		signed, err := os.ReadFile(path)
		check(t, err)
		e, err := statement.ParseErasure(textOf(signed))
		check(t, err)
		l.addNew(t, statement.ErasureLeaf(e.Run, e.Seq, statement.Digest(signed)))
	}
}

func (l *treeLog) addNew(t testing.TB, entry []byte) {
	t.Helper()
	if _, err := l.Index(t.Context(), entry); err != nil {
		l.add(t, entry)
	}
}

func glob(t testing.TB, dir, suffix string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	check(t, err)
	return paths
}

// textOf is the text of a signed note.
func textOf(signed []byte) string {
	text, _, _ := strings.Cut(string(signed), "\n\n")
	return text + "\n"
}

func manifestOf(t testing.TB, path string) (statement.Manifest, []byte) {
	t.Helper()
	signed, err := os.ReadFile(path)
	check(t, err)
	m, err := statement.ParseManifest(textOf(signed))
	check(t, err)
	return m, signed
}

// witness is a key that cosigns, and its verifier.
type witness struct {
	note.Signer
	verifier note.Verifier
}

func newWitness(t testing.TB, name string) witness {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	check(t, err)
	s, err := tnote.NewSignerForCosignatureV1(skey)
	check(t, err)
	v, err := tnote.NewVerifierForCosignatureV1(vkey)
	check(t, err)
	return witness{s, v}
}

// files are a bundle's, by name.
type files map[string][]byte

func unpack(t testing.TB, data []byte) files { return files(prooftest.Unpack(t, data)) }

func (f files) pack(t testing.TB) []byte { return prooftest.Bundle(f).Pack(t) }

// seal returns the files with a new trailer over them, signed by k.
func (f files) seal(t testing.TB, k key) files { return files(prooftest.Bundle(f).Seal(t, k.signer)) }

// verify verifies the files as a bundle.
func (f files) verify(t testing.TB, trust proof.Trust) (proof.Report, error) {
	t.Helper()
	return verifyBytes(t, f.pack(t), trust)
}

func verifyBytes(t testing.TB, data []byte, trust proof.Trust) (proof.Report, error) {
	t.Helper()
	e, err := openBytes(t, data)
	if err != nil {
		return proof.Report{}, err
	}
	defer e.Close()
	return proof.Verify(t.Context(), e, trust)
}

// world is a host with a log, a witness and two runs.
type world struct {
	key
	log      *treeLog
	witness  witness
	one, two string // directories of the runs
	before   []byte // a checkpoint from before the runs
}

func newWorld(t testing.TB) *world {
	t.Helper()
	k := newKey(t)
	w := &world{key: k, log: &treeLog{signer: k.signer}, witness: newWitness(t, "witness.example")}
	for i := range 5 {
		w.log.add(t, statement.ManifestLeaf("r-old", uint64(i), merkle.Hash{byte(i)}))
	}
	w.before = w.log.publish(t)
	w.one, w.two = newRun(t, k, "r-one"), newRun(t, k, "r-two")
	w.log.log(t, w.one)
	w.log.log(t, w.two)
	w.log.publish(t, w.witness)
	return w
}

func (w *world) options() proof.BundleOptions {
	return proof.BundleOptions{HostKey: w.public, Signer: w.signer, Log: w.log, Since: w.before}
}

func (w *world) bundle(t testing.TB, dir string) files {
	t.Helper()
	var b bytes.Buffer
	check(t, proof.WriteBundle(t.Context(), &b, dir, w.options()))
	return unpack(t, b.Bytes())
}

func (w *world) trust() proof.Trust {
	return proof.Trust{Keys: w.trusted, Witnesses: []note.Verifier{w.witness.verifier}, Quorum: 1, Since: w.before}
}

func base64Of(h merkle.Hash) string { return base64.StdEncoding.EncodeToString(h[:]) }
