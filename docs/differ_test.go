package docs_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

var (
	differFor  = flag.Duration("differ", 30*time.Second, "how long TestDiffer changes bundles")
	differSeed = flag.Uint64("seed", 1, "of the changes of TestDiffer")
)

// TestDiffer changes bundles of real runs at random and requires that verify and the other checkers agree on each. A
// change made without a key must be refused. Changes that are signed again reach checks that a broken signature would
// hide; for those the checkers only have to agree.
func TestDiffer(t *testing.T) {
	t.Parallel()
	d := newDiffer(t)
	counts := map[string][3]int{}
	for began := time.Now(); time.Since(began) < *differFor && !t.Failed(); {
		from := d.bundles[d.rand.IntN(len(d.bundles))]
		kind := slices.Sorted(maps.Keys(d.changes))[d.rand.IntN(len(d.changes))]
		data, what := d.changes[kind](from)
		status := d.judge(from.name+", "+kind+": "+what, data, d.arguments)
		if d.rand.IntN(4) == 0 { // what cannot be judged ends the check at the same place
			d.judgeBy(from.name+", unknown key, "+kind+": "+what, data, proof.Trust{Keys: note.VerifierList(must(d.stranger.Verifier()))}, []string{"--key", d.stranger.Public})
		}
		genuine := slices.ContainsFunc(d.bundles, func(b real) bool { return bytes.Equal(data, b.data) })
		if kind == "bytes" && status == 0 && !genuine {
			t.Errorf("%s: accepted: %s", from.name, what)
		}
		c := counts[kind]
		c[status]++
		counts[kind] = c
	}
	t.Logf("seed %d: held, did not hold, could not be judged: %v", *differSeed, counts)
}

// differ has the bundles to change, the keys to sign with and the checkers.
type differ struct {
	t         *testing.T
	rand      *rand.Rand
	bundles   []real
	changes   map[string]func(real) (data []byte, what string)
	key       hostkey.Key // signs everything that is written again
	root      hostkey.Key // of a fleet, signs the statements about hosts
	stranger  hostkey.Key // signs nothing
	hosts     [][]byte
	trust     proof.Trust
	arguments []string
	others    checkers
	dir       string
}

// real is a bundle and its records, by segment.
type real struct {
	name    string
	data    []byte
	records [][][]byte
}

func newDiffer(t *testing.T) *differ {
	d := &differ{t: t, rand: rand.New(rand.NewPCG(*differSeed, 0)), others: newCheckers(t), dir: t.TempDir()}
	d.key = must(hostkey.LoadOrCreate(filepath.Join(d.dir, "keys")))
	d.root, d.stranger = signerOf(t, "fleet.example"), signerOf(t, "stranger.example")
	state := func(by hostkey.Key, public string) []byte {
		return must(must(statement.NewHost(public, time.Unix(1, 0))).Sign(by))
	}
	d.hosts = [][]byte{state(d.root, signerOf(t, "custody-other").Public), state(signerOf(t, "fleet.of.others"), d.key.Public)}
	d.trust = proof.Trust{Keys: note.VerifierList(must(d.key.Verifier())), Fleets: note.VerifierList(must(d.root.Verifier()))}
	d.arguments = []string{"--key", d.key.Public, "--fleet-key", d.root.Public}
	for _, path := range must(filepath.Glob("../replay/report/testdata/*.zip")) {
		records := recordsOf(path)
		data := d.write(records)
		name := strings.TrimSuffix(filepath.Base(path), ".zip")
		if status := d.judge(name, data, d.arguments); status != 0 {
			t.Fatalf("%s: %d before anything is changed", name, status)
		}
		d.bundles = append(d.bundles, real{name, data, records})
	}
	d.changes = map[string]func(real) ([]byte, string){"bytes": d.bytes, "files": d.files, "statements": d.statements, "records": d.records}
	return d
}

// judge runs all checkers with the host's key as trusted, and fails the test if their verdicts differ.
func (d *differ) judge(what string, data []byte, arguments []string) int {
	d.t.Helper()
	return d.judgeBy(what, data, d.trust, arguments)
}

// judgeBy is judge with the given trust; arguments state the same trust for the other checkers.
func (d *differ) judgeBy(what string, data []byte, trust proof.Trust, arguments []string) int {
	d.t.Helper()
	path := filepath.Join(d.dir, "bundle")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
	status, err := ours(d.t, path, trust)
	for _, other := range d.others.all {
		if answer := other.ask(append([]string{path}, arguments...)...); !strings.HasPrefix(answer, fmt.Sprint(status, " ")) {
			kept := filepath.Join(os.TempDir(), "custody-differ.tar")
			_ = os.WriteFile(kept, data, 0o600)
			d.t.Errorf("%s\nverify: %d, %v\n%s: %s\nthe bundle is %s, the key %s", what, status, err, other.name, answer, kept, d.key.Public)
		}
	}
	return status
}

// bytes changes a bundle without signing anything again.
func (d *differ) bytes(from real) ([]byte, string) {
	b := bytes.Clone(from.data)
	at, other := d.rand.IntN(len(b)), d.bundles[d.rand.IntN(len(d.bundles))].data
	length := min(1<<d.rand.IntN(12), len(b)-at)
	switch d.rand.IntN(6) {
	case 0:
		b[at] ^= 1 << d.rand.IntN(8)
		return b, fmt.Sprintf("a bit of byte %d", at)
	case 1:
		return slices.Delete(b, at, at+length), fmt.Sprintf("%d bytes from %d deleted", length, at)
	case 2:
		return slices.Insert(b, at, b[at:at+length]...), fmt.Sprintf("%d bytes from %d doubled", length, at)
	case 3:
		clear(b[at : at+length])
		return b, fmt.Sprintf("%d bytes from %d cleared", length, at)
	case 4:
		block, blocks := at/512*512, len(b)/512
		to := d.rand.IntN(blocks) * 512
		copy(b[to:], from.data[block:min(block+512*(1+d.rand.IntN(4)), len(b))])
		return b, fmt.Sprintf("blocks from %d to %d", block, to)
	}
	n := copy(b[at:], other[min(at, len(other)-1):])
	return b[:at+n], fmt.Sprintf("another bundle from %d", at)
}

// files changes one file, and signs the trailer again.
func (d *differ) files(from real) ([]byte, string) {
	f := prooftest.Unpack(d.t, from.data)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f)), func(n string) bool { return n == "trailer" })
	name := names[d.rand.IntN(len(names))]
	what := name
	switch d.rand.IntN(8) {
	case 0:
		delete(f, name)
		what += " deleted"
	case 1:
		other := prooftest.Unpack(d.t, d.bundles[d.rand.IntN(len(d.bundles))].data)
		for n, b := range other {
			if n != "trailer" && d.rand.IntN(len(other)) < 3 {
				f[n] = b
			}
		}
		what = "files of another"
	case 2:
		news := []string{"since", "consistency", "checkpoint.tsr", "selection", "attachments", "report/x", "00000000000000000099.seg", "00000000000000000001.rotation", "00000000000000000002.erasure", "00000000000000000001.witnessed", "00000000000000000003.host", "x"}
		what = news[d.rand.IntN(len(news))]
		f[what] = f[name]
		what += " from " + name
	default:
		var how string
		f[name], how = d.token(f[name])
		what += ": " + how
	}
	return f.Seal(d.t, d.key).Pack(d.t), what
}

// statements changes a signed statement, and signs it and everything that depends on it again.
func (d *differ) statements(from real) ([]byte, string) {
	f := prooftest.Unpack(d.t, from.data)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f)), func(n string) bool {
		return filepath.Ext(n) != ".manifest" && filepath.Ext(n) != ".host" && n != "checkpoint" && n != "trailer"
	})
	name := names[d.rand.IntN(len(names))]
	text, _, _ := strings.Cut(string(f[name]), "\n\n")
	changed, what := d.token([]byte(text + "\n"))
	by := d.key
	if filepath.Ext(name) == ".host" {
		by = d.root
	}
	signed, err := note.Sign(&note.Note{Text: string(changed)}, by)
	if err != nil {
		return from.data, "nothing: " + err.Error()
	}
	f[name] = signed
	if name == "trailer" {
		return f.Pack(d.t), name + ": " + what
	}
	if name == "checkpoint" { // every proof leads to it
		for n, b := range f {
			if filepath.Ext(n) == ".tlog-proof" {
				head, _, _ := bytes.Cut(b, []byte("\n\n"))
				f[n] = slices.Concat(head, []byte("\n\n"), signed)
			}
		}
	}
	return f.Seal(d.t, d.key).Pack(d.t), name + ": " + what
}

// records changes a record, and writes and signs the whole run again.
func (d *differ) records(from real) ([]byte, string) {
	segments := make([][][]byte, len(from.records))
	for i := range segments {
		segments[i] = slices.Clone(from.records[i])
	}
	i := d.rand.IntN(len(segments))
	j := d.rand.IntN(len(segments[i]))
	var what string
	segments[i][j], what = d.token(segments[i][j])
	return d.write(segments), fmt.Sprintf("record %d of segment %d: %s: %q", j, i, what, segments[i][j])
}

var tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?[0-9]+|[a-z]+|[A-Za-z0-9+/=]{20,}|[^\s]|\s`)

// strange are pieces of text that parsers may read differently.
var strange = []string{
	"0", "-0", "00", "01", "1", "-1", "1e0", "1E0", "1.0", "0x1", "+1", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "9223372036854775808", "9007199254740993",
	"true", "false", "null", "True", "NaN", "{}", "[]", "[null]", `""`, `"x"`, `"\u0041"`, `"\u003C"`, `"\u003c"`, `"<"`, `"&"`, `"\/"`, `"\ud800"`, `"\ufffd"`, `"\\\\ufffd"`, `"\ud83d\ude00"`, `"\u0000"`, `"\u007f"`, "\"\x7f\"", "\"\u2028\"", `"\u2028"`, "\"\u00a0\"", "\"\ufeff\"", "\"\xff\"", "\"\u00e9\"", "\"e\u0301\"",
	`{"base64":"/w=="}`, `{"base64":"/x=="}`, `{"base64":"YQ=="}`, `{"base64":""}`, `{"base64":"/w==","base64":"/w=="}`, `"seq":1,`, `"novel":1,`, `,"novel":1`, `"Seq":1,`, `,"v":1`, `"v":1,`, `"kind":"gap",`, `"step":"",`, `"step":"s",`,
	`"2026-01-02T03:04:05Z"`, `"2026-01-02T03:04:05.10Z"`, `"2026-01-02T03:04:05+00:00"`, `"2026-02-29T03:04:05Z"`, `"0000-01-02T03:04:05Z"`, `"0001-01-01T00:00:00Z"`, `"2026-01-02T03:04:60Z"`, `"2026-01-02t03:04:05z"`, `"9999-12-31T23:59:59.999999999Z"`,
	" ", "\n", "\t", "\r", "\x00", "\u00a0", "\u2014 ", "- ", "\n\n", "=", "==", "A", "/", "\u2014 x AAAAAAAA\n", "\u2014 custody AAAAAAA=\n",
}

// token changes a piece of a text, or a bit of something else.
func (d *differ) token(b []byte) ([]byte, string) {
	b = bytes.Clone(b)
	spans := tokens.FindAllIndex(b[:min(len(b), 1<<16)], -1)
	if len(spans) == 0 {
		s := strange[d.rand.IntN(len(strange))]
		return append(b, s...), fmt.Sprintf("%q added", s)
	}
	at := spans[d.rand.IntN(len(spans))]
	other := spans[d.rand.IntN(len(spans))]
	s := strange[d.rand.IntN(len(strange))]
	switch d.rand.IntN(7) {
	case 0:
		b[at[0]] ^= 1 << d.rand.IntN(8)
		return b, fmt.Sprintf("a bit of byte %d", at[0])
	case 1:
		return slices.Delete(b, at[0], at[1]), fmt.Sprintf("%q deleted at %d", b[at[0]:at[1]], at[0])
	case 2:
		return slices.Insert(b, at[0], []byte(s)...), fmt.Sprintf("%q inserted at %d", s, at[0])
	case 3:
		from, to := min(at[0], other[0]), max(at[1], other[1])
		return slices.Insert(b, to, bytes.Clone(b[from:to])...), fmt.Sprintf("bytes %d to %d doubled", from, to)
	case 4:
		to := bytes.Clone(b[other[0]:other[1]])
		return slices.Replace(b, at[0], at[1], to...), fmt.Sprintf("%q at %d", to, at[0])
	case 5:
		return slices.Replace(b, at[0], at[1], bytes.ToUpper(b[at[0]:at[1]])...), fmt.Sprintf("%q in upper case at %d", b[at[0]:at[1]], at[0])
	}
	return slices.Replace(b, at[0], at[1], []byte(s)...), fmt.Sprintf("%q at %d", s, at[0])
}

// recordsOf reads the records of a bundle of an earlier version.
func recordsOf(path string) (segments [][][]byte) {
	z := must(zip.OpenReader(path))
	defer z.Close()
	files := map[string][]byte{}
	for _, f := range z.File {
		files[f.Name] = must(io.ReadAll(must(f.Open())))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != wal.SegmentSuffix {
			continue
		}
		var records [][]byte
		for data := files[name]; len(data) > 0; {
			end := 29 + binary.LittleEndian.Uint32(data[4:])
			records = append(records, data[29:end])
			data = data[end:]
		}
		if len(records) > 0 {
			segments = append(segments, records)
		}
	}
	return segments
}

var (
	seqOf = regexp.MustCompile(`"seq":([0-9]{1,18})`)
	runOf = regexp.MustCompile(`"run":"([0-9A-Za-z._-]{1,100})"`)
)

// write writes a run with these records, with all signatures and a log, as docs/verify.md describes it.
func (d *differ) write(segments [][][]byte) []byte {
	var run string // a record may lack it after a change
	for _, r := range slices.Concat(segments...) {
		if m := runOf.FindSubmatch(r); m != nil && run == "" {
			run = string(m[1])
		}
	}
	dir := filepath.Join(d.dir, "run")
	if err := cmp.Or(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		d.t.Fatal(err)
	}
	log := &tree{signer: d.key}
	log.add([]byte("custody leaf v1\nrotation " + strings.Repeat("00", 32) + "\n"))
	sealer := statement.NewSealer(d.key, statement.Facts{Tier: "qemu-tcg"})
	next, prev := uint64(1), []byte(nil)
	for i, records := range segments {
		s := wal.Segment{Run: run, Index: uint64(i), First: next, Count: uint64(len(records)), Losses: wal.Losses{}, Time: time.Unix(1, 0), Prev: prev}
		var data []byte
		for _, r := range records {
			data = append(data, frameOf(r)...)
			s.Leaves = append(s.Leaves, merkle.LeafHash([16]byte{}, r))
			_ = s.Losses.Add(r)
			if m := seqOf.FindSubmatch(r); m != nil {
				fmt.Sscan(string(m[1]), &s.Last)
			} else {
				s.Last++
			}
			if s.Count > 0 && next == s.First && len(s.Leaves) == 1 {
				s.First = s.Last
			}
		}
		next = s.Last + 1
		s.Bytes = int64(len(data))
		if i == len(segments)-1 {
			s.Closing = wal.Sealed
		}
		leaves, manifest, err := sealer.Seal(s)
		if err != nil {
			d.t.Fatal(err)
		}
		prev = manifest
		for suffix, b := range map[string][]byte{wal.SegmentSuffix: data, wal.LeavesSuffix: leaves, wal.ManifestSuffix: manifest} {
			if err := os.WriteFile(filepath.Join(dir, wal.FileName(s.First, suffix)), b, 0o600); err != nil {
				d.t.Fatal(err)
			}
		}
		log.add(statement.ManifestLeaf(run, s.Index, statement.Digest(manifest)))
	}
	log.publish()
	var b bytes.Buffer
	if err := proof.WriteBundle(d.t.Context(), &b, dir, proof.BundleOptions{HostKey: d.key.Public, Signer: d.key, Log: log, Hosts: d.hosts}); err != nil {
		d.t.Fatal(err)
	}
	return b.Bytes()
}

// frameOf is a record's frame with a salt of zeros.
func frameOf(record []byte) []byte {
	b := append([]byte("CWF1"), binary.LittleEndian.AppendUint32(nil, uint32(len(record)))...)
	body := append(make([]byte, 17), record...)
	table := crc32.MakeTable(crc32.Castagnoli)
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b[4:8], table), table, body))
	return append(b, body...)
}
