package docs_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/statement"
)

// TestRedoEdges: all checkers refuse faults under a valid trailer in parts that no other check reads.
func TestRedoEdges(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	stranger := signerOf(t, "stranger")
	size := len(s.log.entries)
	renumbered := func(f map[string][]byte) {
		one, two := "00000000000000000001.rotation", "00000000000000000002.rotation"
		f[two], f[two+".tlog-proof"] = f[one], f[one+".tlog-proof"]
		delete(f, one)
		delete(f, one+".tlog-proof")
	}
	for title, c := range map[string]struct {
		change func(map[string][]byte)
		key    string
		want   int
	}{
		"since today": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], fmt.Appendf(nil, "old %d\n\n%s", size, f["checkpoint"])
		}, s.key.Public, 0},
		"since today, no proof": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], []byte("x")
		}, s.key.Public, 1},
		"since today, a path": {func(f map[string][]byte) {
			f["since"], f["consistency"] = f["checkpoint"], fmt.Appendf(nil, "old %d\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n%s", size, f["checkpoint"])
		}, s.key.Public, 1},
		"leaves of no records": {func(f map[string][]byte) {
			names := slices.DeleteFunc(slices.Sorted(maps.Keys(f)), func(n string) bool { return filepath.Ext(n) != ".manifest" })
			last := names[len(names)-1]
			f[last[:20]+".leaves"] = []byte("x")
		}, s.key.Public, 1},
		"host.pub is another trusted key":  {func(f map[string][]byte) { f["host.pub"] = []byte(s.old.Public + "\n") }, s.old.Public, 1},
		"host.pub is another, and unknown": {func(f map[string][]byte) { f["host.pub"] = []byte(s.old.Public + "\n") }, stranger.Public, 2},
		"a rotation twice": {func(f map[string][]byte) {
			one, two := "00000000000000000001.rotation", "00000000000000000002.rotation"
			f[two], f[two+".tlog-proof"] = f[one], f[one+".tlog-proof"]
		}, s.key.Public, 1},
		"rotations numbered from 2":           {renumbered, s.key.Public, 1},
		"rotations from 2, of an unknown key": {renumbered, stranger.Public, 2},
		"an empty file attached": {func(f map[string][]byte) {
			f["report/x"] = nil
			f["attachments"] = s.attached(t, f, nil, "report/x")
		}, s.key.Public, 1},
		"an empty file attached, not there": {func(f map[string][]byte) { f["attachments"] = s.attached(t, f, nil, "report/x") }, s.key.Public, 1},
		"a zip file in the stamp":           {func(f map[string][]byte) { f["checkpoint.tsr"] = zipped(t, "") }, s.key.Public, 1},
		"a zip file with a comment":         {func(f map[string][]byte) { f["README.txt"] = zipped(t, strings.Repeat("x", 40000)) }, s.key.Public, 1},
		"a zip file by its length":          {func(f map[string][]byte) { f["checkpoint.tsr"] = misplaced(zipped(t, ""), 16) }, s.key.Public, 1},
		"a zip file of 64 bits": {func(f map[string][]byte) {
			f["checkpoint.tsr"] = append([]byte("PK\x06\x07"), append(make([]byte, 16), misplaced(zipped(t, ""), 12, 16)[len(zipped(t, ""))-22:]...)...)
		}, s.key.Public, 1},
		"the end of a zip file without one": {func(f map[string][]byte) { f["checkpoint.tsr"] = misplaced(zipped(t, ""), 12, 16) }, s.key.Public, 0},
		"attached": {func(f map[string][]byte) {
			f["report/X"], f["report/y"] = []byte("x"), []byte("x")
			f["attachments"] = s.attached(t, f, []byte("x"), "report/X", "report/y")
		}, s.key.Public, 0},
		"attached, names that differ in case only": {func(f map[string][]byte) {
			f["report/X"], f["report/x"] = []byte("x"), []byte("x")
			f["attachments"] = s.attached(t, f, []byte("x"), "report/X", "report/x")
		}, s.key.Public, 1},
		"no README.txt":               {func(f map[string][]byte) { delete(f, "README.txt") }, s.key.Public, 1},
		"another README.txt":          {func(f map[string][]byte) { f["README.txt"] = []byte("x") }, s.key.Public, 0},
		"the statement of a deletion": {func(f map[string][]byte) { f["00000000000000000001.deletion"] = f["trailer"] }, s.key.Public, 1},
		"an empty selection":          {func(f map[string][]byte) { f["selection"] = nil }, s.key.Public, 1},
		"host.pub without an end":     {func(f map[string][]byte) { f["host.pub"] = f["host.pub"][:len(f["host.pub"])-1] }, stranger.Public, 1},
	} {
		for name, truth := range map[string]map[string][]byte{"one": s.truth, "two": s.other} {
			files := maps.Clone(truth)
			c.change(files)
			bundle := s.seal(t, files)
			trust := s.trust
			trust.Witnesses, trust.Quorum, trust.Since = nil, 0, nil
			trust.Keys = note.VerifierList(must(note.NewVerifier(c.key)))
			want, err := ours(t, bundle, trust)
			if want != c.want {
				t.Errorf("%s, %s: verify: %d, %v; want %d", title, name, want, err, c.want)
			}
			others.agree(title+", "+name, want, err, bundle, "--key", c.key)
		}
	}
}

// attached returns the host's signed statement that the bundle has attachments of these names, all with the same content.
func (s *scene) attached(t *testing.T, f map[string][]byte, content []byte, names ...string) []byte {
	t.Helper()
	text, _, _ := strings.Cut(string(f["trailer"]), "\n\n")
	trailer := must(statement.ParseTrailer(text + "\n"))
	a := statement.Attachments{V: 1, About: []statement.Subject{{Run: trailer.Run, Head: trailer.Head}}, Time: time.Unix(1, 0).UTC()}
	for _, name := range names {
		a.Files = append(a.Files, statement.AttachedFile{Name: name, Bytes: int64(len(content)), SHA256: statement.Digest(content)})
	}
	line := must(json.Marshal(a))
	return must(note.Sign(&note.Note{Text: fmt.Sprintf("custody attachments v1\n%s\n", line)}, s.key))
}

// zipped is a zip file with a forged record.
func zipped(t *testing.T, comment string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w := must(z.CreateHeader(&zip.FileHeader{Name: "00000000000000000001.seg"}))
	must(w.Write([]byte("forged")))
	if err := errors.Join(z.SetComment(comment), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// misplaced changes 32-bit fields of a zip file's end record: the directory's length is at 12, its offset at 16.
func misplaced(file []byte, fields ...int) []byte {
	for _, at := range fields {
		binary.LittleEndian.PutUint32(file[len(file)-22+at:], 1<<31)
	}
	return file
}
