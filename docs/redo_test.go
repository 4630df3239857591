package docs_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	tnote "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/redact"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tree is a host's log in memory.
type tree struct {
	signer  note.Signer
	entries [][]byte
	hashes  []tlog.Hash
	last    []byte
}

// ReadHashes implements tlog.HashReader.
func (l *tree) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, l.hashes[i])
	}
	return all, nil
}

func (l *tree) add(entry []byte) {
	l.hashes = append(l.hashes, must(tlog.StoredHashes(int64(len(l.entries)), entry, l))...)
	l.entries = append(l.entries, entry)
}

func (l *tree) publish(witnesses ...note.Signer) []byte {
	root := must(tlog.TreeHash(int64(len(l.entries)), l))
	text := fmt.Sprintf("%s\n%d\n%s\n", l.signer.Name(), len(l.entries), base64.StdEncoding.EncodeToString(root[:]))
	l.last = must(note.Sign(&note.Note{Text: text}, append([]note.Signer{l.signer}, witnesses...)...))
	return l.last
}

func (l *tree) Checkpoint(context.Context) ([]byte, error) { return l.last, nil }

func (l *tree) Index(_ context.Context, entry []byte) (uint64, error) {
	i := slices.IndexFunc(l.entries, func(e []byte) bool { return bytes.Equal(e, entry) })
	if i < 0 {
		return 0, fs.ErrNotExist
	}
	return uint64(i), nil
}

func (l *tree) Inclusion(_ context.Context, index, size uint64) (all []merkle.Hash, err error) {
	for _, h := range must(tlog.ProveRecord(int64(size), int64(index), l)) {
		all = append(all, merkle.Hash(h))
	}
	return all, nil
}

func (l *tree) Consistency(_ context.Context, from, to uint64) (all []merkle.Hash, err error) {
	for _, h := range must(tlog.ProveTree(int64(to), int64(from), l)) {
		all = append(all, merkle.Hash(h))
	}
	return all, nil
}

// record writes a run of several segments and returns its directory. If empty is set, the last segment has no records.
func record(t *testing.T, run string, key hostkey.Key, empty bool, copies []*audit.Copy) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), run)
	log := must(wal.Create(dir, wal.Options{Run: run, Sealer: statement.NewSealer(key, statement.Facts{Tier: "qemu-tcg"})}))
	rec := audit.NewRecorder(log, redact.New(make([]byte, 32)))
	for i := range 12 {
		ev := audit.Event{Observer: audit.Guest, Kind: audit.KindOutput, Output: &audit.Output{Stream: "stdout", Text: audit.Text(fmt.Sprintln("<line>", i))}}
		if at := i - firstCopy; at >= 0 && at < len(copies) {
			ev = audit.Event{Observer: audit.Host, Kind: audit.KindCopy, Copy: copies[at]}
		}
		must(rec.Record(t.Context(), ev))
		if i == 0 || i == 6 || empty && i == 11 { // segments of 1, 6 and 5 records
			if err := log.Rotate(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := log.Close(t.Context(), wal.Sealed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// firstCopy is the number of records before those of the copy.
const firstCopy = 7

// copied is a copy of three files: two lists, and the end.
func copied() []*audit.Copy {
	files := []audit.CopiedFile{
		{Path: "<a> \u2028", Mode: "0644", Size: 3, SHA256: strings.Repeat("ab", 32)},
		{Path: "b\xff\"", As: "b\xff\".from-sandbox", Mode: "0755", Size: 40, SHA256: strings.Repeat("cd", 32)},
		{Path: "link", Mode: "0777", Link: "b\xff"},
	}
	lists := []*audit.Copy{
		{Direction: "out", Op: audit.CopyList, Salt: strings.Repeat("0a", 16), Files: files[:1]},
		{Direction: "out", Op: audit.CopyList, First: 1, Salt: strings.Repeat("0b", 16), Files: files[1:]},
	}
	var tree merkle.CopyTree
	for _, l := range lists {
		if err := tree.Add(l); err != nil {
			panic(err)
		}
	}
	return append(lists, &audit.Copy{Direction: "out", Op: audit.CopyEnd, Dir: "/srv/out", Count: tree.Count(), Bytes: tree.Bytes(), Root: tree.Root().String()})
}

// scene is two bundles of a host whose key was rotated, with an erased record, and their checkers.
type scene struct {
	old, key     hostkey.Key
	witness      string
	cosigner     note.Signer
	log          *tree
	before       []byte
	truth, other map[string][]byte
	trust        proof.Trust
	arguments    []string
	since        string
	one, two     string // directories of the runs
	rotation     []byte
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return newSceneOf(t, copied(), 5)
}

// newSceneOf returns a scene whose first run has these records of a copy, and the record erased, which is erased.
func newSceneOf(t *testing.T, copies []*audit.Copy, erased uint64) *scene {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	s := &scene{old: must(hostkey.LoadOrCreate(keys))}
	s.log = &tree{signer: s.old}
	for i := range 6 {
		s.log.add(statement.ManifestLeaf("r-0", uint64(i), merkle.Hash{}))
	}
	s.before = s.log.publish()
	stated := must(hostkey.Rotate(keys))
	s.key = must(hostkey.LoadOrCreate(keys))
	s.log.signer = s.key
	s.log.add(statement.RotationLeaf(statement.Digest(stated)))
	skey, vkey, err := note.GenerateKey(rand.Reader, "witness.example")
	if err != nil {
		t.Fatal(err)
	}
	s.witness, s.cosigner = vkey, must(tnote.NewSignerForCosignatureV1(skey))

	one, two := record(t, "r-1", s.key, false, copies), record(t, "r-2", s.key, true, nil)
	s.one, s.two, s.rotation = one, two, stated
	erase(t, one, s.key, erased)
	s.enter(t, one)
	past := prooftest.Past{s.log.publish(s.cosigner)}
	s.enter(t, two)
	past = append(past, s.log.publish(s.cosigner))
	pack := func(dir string) map[string][]byte {
		var b bytes.Buffer
		o := proof.BundleOptions{HostKey: s.key.Public, Signer: s.key, Log: s.log, Since: s.before, Past: past, Rotations: [][]byte{stated}}
		if err := proof.WriteBundle(t.Context(), &b, dir, o); err != nil {
			t.Fatal(err)
		}
		return prooftest.Unpack(t, b.Bytes())
	}
	s.truth, s.other = pack(one), pack(two)
	s.since = filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(s.since, s.before, 0o600); err != nil {
		t.Fatal(err)
	}
	s.trust = proof.Trust{
		Keys:      note.VerifierList(must(s.old.Verifier())),
		Witnesses: []note.Verifier{must(tnote.NewVerifierForCosignatureV1(vkey))}, Quorum: 1, Since: s.before,
	}
	s.arguments = []string{"--key", s.old.Public, "--witness", vkey, "--quorum", "1", "--since", s.since}
	return s
}

func erase(t *testing.T, dir string, key hostkey.Key, seq uint64) {
	t.Helper()
	eraseOn(t, dir, key, seq, time.Now())
}

// eraseOn erases a record and states that it was then.
func eraseOn(t *testing.T, dir string, key hostkey.Key, seq uint64, at time.Time) {
	t.Helper()
	for _, path := range must(wal.Segments(dir)) {
		for f, err := range wal.ReadSegment(path) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Seq == seq {
				e := must(statement.NewErasure(f, "asked for", "dpo", at))
				must(proof.StateErasure(dir, e, key))
			}
		}
	}
	if err := wal.Erase(t.Context(), dir, seq); err != nil {
		t.Fatal(err)
	}
}

// enter adds a run's manifests and statements to the log.
func (s *scene) enter(t *testing.T, dir string) {
	t.Helper()
	text := func(signed []byte) string { return strings.SplitN(string(signed), "\n\n", 2)[0] + "\n" }
	for _, path := range must(filepath.Glob(filepath.Join(dir, "*.manifest"))) {
		signed := must(os.ReadFile(path))
		m := must(statement.ParseManifest(text(signed)))
		s.log.add(statement.ManifestLeaf(m.Run, m.Segment, statement.Digest(signed)))
	}
	for _, path := range must(filepath.Glob(filepath.Join(dir, "*.erasure"))) {
		signed := must(os.ReadFile(path))
		e := must(statement.ParseErasure(text(signed)))
		s.log.add(statement.ErasureLeaf(e.Run, e.Seq, statement.Digest(signed)))
	}
}

// write packs these files, which include the trailer, into a bundle and returns its path.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bundle.tar")
	if err := os.WriteFile(path, prooftest.Bundle(files).Pack(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// seal writes a bundle with these files and a valid trailer over them.
func (s *scene) seal(t *testing.T, files map[string][]byte) string {
	t.Helper()
	return write(t, prooftest.Bundle(files).Seal(t, s.key))
}

// ours returns the exit status that custody verify would have.
func ours(t *testing.T, bundle string, trust proof.Trust) (int, error) {
	t.Helper()
	e, err := proof.OpenBundle(bundle)
	if err == nil {
		defer e.Close()
		_, err = proof.Verify(t.Context(), e, trust)
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, verdict.ErrCannotBeJudged):
		return 2, err
	}
	return 1, err
}

// theirs returns verify.py's exit status and output.
func theirs(t *testing.T, bundle string, arguments ...string) (int, string) {
	t.Helper()
	c := exec.Command("python3", append([]string{"-I", "verify.py", bundle}, arguments...)...)
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("python3: %v", err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// driver runs the script for each line of arguments in one process, because Python's start takes most of a short run. It
// caches parsed records.
const driver = `
import contextlib, functools, importlib.util, io, sys
spec = importlib.util.spec_from_file_location("verify", "verify.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
script.crc32c = functools.lru_cache(20000)(script.crc32c)
script.scan = functools.lru_cache(20000)(script.scan)
for line in sys.stdin:
    sys.argv, out, code = ["verify.py"] + line.rstrip("\n").split("\t"), io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try: script.run()
        except SystemExit as e: code = e.code
    print(code, out.getvalue().replace("\n", " "), flush=True)
`

// TestRedo: the script and the page reach the same verdict as verify for each change of a bundle.
func TestRedo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, files := range []map[string][]byte{s.truth, s.other} {
		code, out := theirs(t, write(t, files), s.arguments...)
		if code != 0 || !strings.Contains(out, "HOLDS: run r-") || !strings.Contains(out, "12 records") || !strings.Contains(out, "1 witnesses") {
			t.Fatalf("exit status %d: %s", code, out)
		}
	}
	others := newCheckers(t)
	mutations := s.mutations()
	for _, title := range slices.Sorted(maps.Keys(mutations)) {
		files := maps.Clone(s.truth)
		mutations[title](files)
		bundle := write(t, files)
		want, err := ours(t, bundle, s.trust)
		if want == 0 {
			t.Errorf("%s: verify holds", title)
		}
		others.agree(title, want, err, append([]string{bundle}, s.arguments...)...)
	}
}

// TestRedoCopies: all checkers compare the files of a copy with its root, unless an erased record may have listed some.
func TestRedoCopies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func([]*audit.Copy)
		erased uint64
		want   int
	}{
		"fine":                  {func([]*audit.Copy) {}, 5, 0},
		"a list is erased":      {func([]*audit.Copy) {}, firstCopy + 2, 0},
		"an end is erased":      {func([]*audit.Copy) {}, firstCopy + 3, 0},
		"another path":          {func(c []*audit.Copy) { c[1].Files[1].Path = "x" }, 5, 1},
		"another link":          {func(c []*audit.Copy) { c[1].Files[1].Link = "x" }, 5, 1},
		"another size":          {func(c []*audit.Copy) { c[0].Files[0].Size = 4 }, 5, 1},
		"another salt":          {func(c []*audit.Copy) { c[0].Salt = c[1].Salt }, 5, 1},
		"a list is not there":   {func(c []*audit.Copy) { *c[0] = *c[1] }, 5, 1},
		"another count":         {func(c []*audit.Copy) { c[2].Count++ }, 5, 1},
		"another sum of sizes":  {func(c []*audit.Copy) { c[2].Bytes++ }, 5, 1},
		"another root":          {func(c []*audit.Copy) { c[2].Root = strings.Repeat("00", 32) }, 5, 1},
		"another op":            {func(c []*audit.Copy) { c[1].Op, c[2].Op = "news", "news" }, 5, 0},
		"ends in two ways":      {func(c []*audit.Copy) { c[2].Direction = "in" }, 5, 1},
		"wrong, and one erased": {func(c []*audit.Copy) { c[2].Count++ }, firstCopy + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			copies := copied()
			c.change(copies)
			s := newSceneOf(t, copies, c.erased)
			bundle := write(t, s.truth)
			want, err := ours(t, bundle, s.trust)
			if want != c.want {
				t.Errorf("verify: %d, %v; want %d", want, err, c.want)
			}
			newCheckers(t).agree(name, c.want, err, append([]string{bundle}, s.arguments...)...)
			if c.want == 1 && !errors.Is(err, verdict.ErrCopied) {
				t.Errorf("the finding is %v", err)
			}
		})
	}
}

// TestRedoTrust checks the good bundle with other keys and demands.
func TestRedoTrust(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	bundle := write(t, s.truth)
	stranger := must(hostkey.LoadOrCreate(t.TempDir()))
	later := filepath.Join(t.TempDir(), "later")
	s.log.add([]byte("one more\n"))
	signed := s.log.publish()
	if err := os.WriteFile(later, signed, 0o600); err != nil {
		t.Fatal(err)
	}
	absent := prooftest.NewWitness(t, "absent.example")
	both := append(slices.Clone(s.trust.Witnesses), note.Verifier(absent))
	list := func(k hostkey.Key) note.Verifiers { return note.VerifierList(must(k.Verifier())) }
	for title, c := range map[string]struct {
		trust     proof.Trust
		arguments []string
		want      int
	}{
		"the new key":      {proof.Trust{Keys: list(s.key)}, []string{"--key", s.key.Public}, 0},
		"the old key":      {proof.Trust{Keys: list(s.old)}, []string{"--key", s.old.Public}, 0},
		"another key":      {proof.Trust{Keys: list(stranger)}, []string{"--key", stranger.Public}, 2},
		"two witnesses":    {proof.Trust{Keys: list(s.key), Witnesses: both, Quorum: 2}, []string{"--key", s.key.Public, "--witness", s.witness, "--witness", absent.Key}, 1},
		"its own form":     {proof.Trust{Keys: list(s.key), Witnesses: s.trust.Witnesses, Quorum: 1}, []string{"--key", s.key.Public, "--witness", must(tnote.VKeyToCosignatureV1(s.witness)), "--quorum", "1"}, 0},
		"unknown witness":  {proof.Trust{Keys: list(s.key), Witnesses: both[1:], Quorum: 1}, []string{"--key", s.key.Public, "--witness", absent.Key}, 1},
		"later checkpoint": {proof.Trust{Keys: list(s.key), Since: signed}, []string{"--key", s.key.Public, "--since", later}, 1},
	} {
		want, err := ours(t, bundle, c.trust)
		if want != c.want {
			t.Errorf("%s: verify: %d, %v; want %d", title, want, err, c.want)
		}
		others.agree(title, want, err, append([]string{bundle}, c.arguments...)...)
	}
}

// TestRedoAsked: arguments that cannot be used are an error of usage, not a finding about the bundle.
func TestRedoAsked(t *testing.T) {
	t.Parallel()
	s, others := newScene(t), newCheckers(t)
	bundle := write(t, s.truth)
	for title, arguments := range map[string][]string{
		"no key":             {bundle},
		"half a key":         {bundle, "--key", s.old.Public[:40]},
		"unknown option":     {bundle, "--key", s.old.Public, "--quorun", "1"},
		"no number":          {bundle, "--key", s.old.Public, "--quorum", "two"},
		"option without end": {bundle, "--key"},
		"no bundle":          {bundle + ".not", "--key", s.old.Public},
		"no checkpoint":      {bundle, "--key", s.old.Public, "--since", bundle + ".not"},
	} {
		if code, out := theirs(t, arguments[0], arguments[1:]...); code != 2 || !strings.Contains(out, "CANNOT BE JUDGED") {
			t.Errorf("%s: %d, %s", title, code, out)
		}
		others.agree(title, 2, nil, arguments...)
	}
	python := must(exec.Command("python3", "-c", "import sys; print(sys.executable, end='')").Output())
	c := exec.Command(string(python), "-I", "verify.py", bundle, "--key", s.old.Public)
	c.Env = []string{"PATH=" + t.TempDir()}
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 2 {
		t.Errorf("without openssl: %d, %s", c.ProcessState.ExitCode(), out)
	}
}

// mutations are changes to a bundle's files.
func (s *scene) mutations() map[string]func(map[string][]byte) {
	n := func(first int, suffix string) string { return fmt.Sprintf("%020d%s", first, suffix) }
	flip := func(name string, at int) func(map[string][]byte) {
		return func(f map[string][]byte) {
			b := bytes.Clone(f[name])
			b[(at+len(b))%len(b)] ^= 0x11
			f[name] = b
		}
	}
	all := map[string]func(map[string][]byte){}
	for name, b := range s.truth {
		if name == "README.txt" {
			continue
		}
		all["drop "+name] = func(f map[string][]byte) { delete(f, name) }
		if strings.HasPrefix(name, n(8, "")) {
			continue // like the files of the other segments
		}
		all["cut "+name] = func(f map[string][]byte) { f[name] = f[name][:len(b)/2] }
		for _, at := range []int{3, len(b) * 2 / 5, -2} { // in a segment of six: within the third record
			all[fmt.Sprint("flip ", name, at)] = flip(name, at)
		}
		if other, ok := s.other[name]; ok && !bytes.Equal(other, b) {
			all["of another run "+name] = func(f map[string][]byte) { f[name] = other }
		}
	}
	seg := s.truth[n(2, ".seg")]
	first := 29 + int(seg[4]) + int(seg[5])<<8
	second := first + 29 + int(seg[first+4]) + int(seg[first+5])<<8
	segment := func(parts ...[]byte) func(map[string][]byte) {
		return func(f map[string][]byte) { f[n(2, ".seg")] = bytes.Join(parts, nil) }
	}
	all["record dropped"] = segment(seg[:first], seg[second:])
	all["record doubled"] = segment(seg[:second], seg[first:])
	all["records swapped"] = segment(seg[first:second], seg[:first], seg[second:])
	all["record appended"] = segment(seg, seg[:first])
	all["checksum of a frame"] = flip(n(2, ".seg"), first+9)
	erased := second // seqs 2, 3, 4 and then 5, which is erased
	erased += 29 + int(seg[erased+4]) + int(seg[erased+5])<<8
	for title, at := range map[string]int{"leaf": 12, "seq": 44, "run": 54, "zeros": 80} {
		all["of the erased record: "+title] = flip(n(2, ".seg"), erased+at)
	}
	all["proofs swapped"] = func(f map[string][]byte) {
		f[n(1, ".tlog-proof")], f[n(2, ".tlog-proof")] = f[n(2, ".tlog-proof")], f[n(1, ".tlog-proof")]
	}
	all["the end dropped"] = func(f map[string][]byte) {
		maps.DeleteFunc(f, func(name string, _ []byte) bool { return strings.HasPrefix(name, n(8, "")) })
	}
	all["erasure dropped, with its proof"] = func(f map[string][]byte) { delete(f, n(5, ".erasure")); delete(f, n(5, ".erasure.tlog-proof")) }
	all["stray file"] = func(f map[string][]byte) { f[n(4, ".leaves")] = nil }
	fork := &tree{signer: s.key}
	for range s.log.entries {
		fork.add([]byte("something else\n"))
	}
	everywhere := func(with []byte) func(map[string][]byte) {
		return func(f map[string][]byte) {
			for name := range f {
				f[name] = bytes.ReplaceAll(f[name], s.truth["checkpoint"], with)
			}
		}
	}
	all["fork"] = everywhere(fork.publish(s.cosigner))
	all["no witness"] = everywhere(fork.publish())
	short := &tree{signer: s.key}
	for _, e := range s.log.entries[:3] {
		short.add(e)
	}
	all["older checkpoint"] = everywhere(short.publish(s.cosigner))
	return all
}

// TestFindingsTable compares the table in verify.md with the code.
func TestFindingsTable(t *testing.T) {
	rows := map[string][2]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d\\d) \\| `([a-z-]+)` \\| (.+) \\|$").FindAllStringSubmatch(page(t, "verify.md"), -1) {
		if _, twice := rows[m[2]]; twice {
			t.Errorf("%s is there twice", m[2])
		}
		rows[m[2]] = [2]string{m[1], m[3]}
	}
	for _, f := range verdict.Findings() {
		want := [2]string{strconv.Itoa(f.Status()), f.Error()}
		if rows[f.Name()] != want {
			t.Errorf("| %s | `%s` | %s |", want[0], f.Name(), want[1])
		}
		delete(rows, f.Name())
	}
	if len(rows) > 0 {
		t.Errorf("verify.md has findings that the code does not: %v", rows)
	}
}

// TestByHand runs the shell commands of verify.md on a bundle.
func TestByHand(t *testing.T) {
	s := newScene(t)
	dir := t.TempDir()
	for name, b := range s.truth {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, text, _ := strings.Cut(page(t, "verify.md"), "\n## By hand\n")
	for contains, want := range map[string]string{
		"tail -c +13":         fmt.Sprintf("%x", s.truth["00000000000000000001.leaves"][:32]),
		"key.der":             "Signature Verified Successfully",
		`(printf '\000'; sed`: fmt.Sprint(statement.LogHash(statement.ManifestLeaf("r-1", 0, statement.Digest(s.truth["00000000000000000001.manifest"])))),
		"$SALT":               fmt.Sprint(merkle.CopyLeaf([16]byte(bytes.Repeat([]byte{0xab}, 16)), audit.CopiedFile{Path: "a b", As: "a b.from-sandbox", Mode: "0644", Size: 3, SHA256: "ef"})),
	} {
		var script string
		for _, block := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(text, -1) {
			if strings.Contains(block, contains) {
				script = block
			}
		}
		c := exec.Command("sh", "-ec", script)
		c.Dir = dir
		c.Env = append(os.Environ(), "SALT="+strings.Repeat("ab", 16), "P=a b", "AS=a b.from-sandbox", "MODE=0644", "SIZE=3", "SHA256=ef", "LINK=")
		out, err := c.CombinedOutput()
		if err != nil || script == "" || !strings.Contains(string(out), want) {
			t.Errorf("%s\n%v: %s\nwant %s", script, err, out, want)
		}
	}
}
