package docs_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
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
)

// put replaces a part of manifest i, which has to be there.
func (r *resigned) put(i int, from, to string) {
	was := r.manifest
	r.manifest = func(n int, text string) string {
		if was != nil {
			text = was(n, text)
		}
		if n != i {
			return text
		}
		if !strings.Contains(text, from) {
			panic(from + " is not in " + text)
		}
		return strings.Replace(text, from, to, 1)
	}
}

// at is a record of output with a time.
func at(seq uint64, time string) []byte {
	return shown("r-1", seq, `"time":"`+time+`","observer":"host","kind":"output","output":{"stream":"stdout","offset":0,"text":"x"}}`)
}

// lost is a gap record with these members of its payload before the last ones.
func lost(seq uint64, observer, payload string) []byte {
	return shown("r-1", seq, `"time":"2026-01-02T03:04:05Z","observer":"`+observer+`","kind":"gap","gap":{`+payload+`"cause":"x"}}`)
}

func erasureOf(seq uint64, leaf merkle.Hash, kind string) string {
	text := leaf.String()
	if leaf == (merkle.Hash{}) {
		text = ""
	}
	return fmt.Sprintf("custody erasure v1\n"+`{"v":1,"run":"r-1","seq":%d,"leaf":"%s","kind":"%s","reason":"a","by":"b","time":"2026-01-02T03:05:00Z"}`+"\n", seq, text, kind)
}

func attachmentsOf(files string) string {
	return "custody attachments v1\n" + `{"v":1,"about":[{"run":"r-1","head":"HEAD"}],"files":[` + files + `],"by":"b","time":"2026-01-02T03:05:00Z"}` + "\n"
}

func rotationOf(old, next hostkey.Key, at string) string {
	return fmt.Sprintf("custody rotation v1\n"+`{"v":1,"old":"%s","new":"%s","time":"%s"}`+"\n", old.Public, next.Public, at)
}

// TestRedoSigned: all agree on runs that the holder of the key wrote and signed in unusual ways.
func TestRedoSigned(t *testing.T) {
	t.Parallel()
	j := newJudges(t)
	key, second, third := signerOf(t, "custody"), signerOf(t, "custody"), signerOf(t, "custody")
	trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier()))}
	leaf := merkle.Hash{1}
	gap := func(payload, losses string) func(*resigned) {
		return func(r *resigned) {
			r.segments[0][0] = lost(1, "host", payload)
			r.put(0, `"losses":{}`, `"losses":{`+losses+`}`)
		}
	}
	hole := func(observer, span string) func(*resigned) {
		return func(r *resigned) {
			r.segments = [][][]byte{{lost(1, observer, `"stage":"wal",`+span+`"count":3,`), shown("r-1", 5, "")}}
			r.put(0, `"losses":{}`, `"losses":{"wal":{"gaps":1,"events":3,"bytes":0}}`)
		}
	}
	erase := func(leaf merkle.Hash, kind string) func(*resigned) {
		return func(r *resigned) {
			r.segments[0][1] = gone("CWE1", leaf, 2, "r-1")
			r.notes["00000000000000000002.erasure"] = erasureOf(2, leaf, kind)
		}
	}
	attach := func(files string) func(*resigned) {
		return func(r *resigned) { r.notes["attachments"] = attachmentsOf(files) }
	}
	one, two := "00000000000000000001.rotation", "00000000000000000002.rotation"
	rotate := func(by hostkey.Key, notes ...string) func(*resigned) {
		return func(r *resigned) {
			r.key = by
			r.by = map[string]note.Signer{one: key, two: second}
			for i, text := range notes {
				r.notes[fmt.Sprintf("%020d.rotation", i+1)] = text
			}
		}
	}
	checkpoint := func(from, to string) func(*resigned) {
		return func(r *resigned) {
			r.checkpoint = func(text string) string { return strings.Replace(text, from, to, 1) }
		}
	}
	empty := statement.Digest(nil).String()
	later := "2026-01-02T03:04:00Z"
	for title, c := range map[string]struct {
		change func(*resigned)
		want   int
	}{
		"as it is":         {func(*resigned) {}, 0},
		"no records":       {func(r *resigned) { r.segments = [][][]byte{{}} }, 0},
		"no records, open": {func(r *resigned) { r.segments = [][][]byte{{}}; r.put(0, `"sealed"`, `""`) }, 1},
		"no records in the middle": {func(r *resigned) {
			r.segments = [][][]byte{{shown("r-1", 1, "")}, {}, {lost(5, "host", `"stage":"wal","first":2,"last":4,"count":3,`)}}
			r.put(2, `"losses":{}`, `"losses":{"wal":{"gaps":1,"events":3,"bytes":0}}`)
		}, 1},
		"no records at the end":   {func(r *resigned) { r.segments[1] = nil }, 0},
		"erased, a leaf of zeros": {erase(merkle.Hash{}, "output"), 0},
		"erased, another leaf":    {erase(leaf, "output"), 0},
		"erased, of kind run":     {erase(leaf, "run"), 1},
		"erased, of no kind":      {erase(leaf, "lifecycle"), 1},
		"withheld, a leaf of zeros": {func(r *resigned) {
			r.segments[0][1] = gone("CWH1", merkle.Hash{}, 2, "r-1")
			masked := statement.Digest(append([]byte{2, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 32)...))
			r.notes["selection"] = fmt.Sprintf("custody selection v1\n"+`{"v":1,"run":"r-1","head":"HEAD","records":3,"withheld":1,"digest":"%s","what":"a","by":"b","time":"2026-01-02T03:05:00Z"}`+"\n", masked)
			r.notes["00000000000000000002.erasure"] = erasureOf(2, merkle.Hash{}, "output")
		}, 0},
		"seq 0": {func(r *resigned) { r.segments = [][][]byte{{shown("r-1", 0, "")}} }, 1},
		"erased seq 0": {func(r *resigned) {
			r.segments = [][][]byte{{gone("CWE1", leaf, 0, "r-1")}}
			r.notes["00000000000000000000.erasure"] = erasureOf(0, leaf, "output")
		}, 1},
		"seq 2^63":                {func(r *resigned) { r.segments[1][0] = shown("r-1", 1<<63, "") }, 1},
		"a tenant":                {func(r *resigned) { r.put(1, `"tier":"qemu-tcg"`, `"tier":"qemu-tcg","tenant":"x"`) }, 0},
		"losses without a gap":    {func(r *resigned) { r.put(1, `{}`, `{"wal":{"gaps":0,"events":0,"bytes":0}}`) }, 1},
		"losses of __proto__":     {gap(`"stage":"__proto__","count":1,`, `"__proto__":{"gaps":1,"events":1,"bytes":0}`), 0},
		"losses of no stage":      {gap(`"stage":"","count":18446744073709551615,`, `"":{"gaps":1,"events":18446744073709551615,"bytes":0}`), 0},
		"a hole, to the last seq": {hole("host", `"first":1,"last":9223372036854775807,`), 0},
		"a hole, one short":       {hole("host", `"first":2,"last":3,`), 1},
		"a hole, by the guest":    {hole("guest", `"first":2,"last":4,`), 1},
		"a hole, turned round":    {hole("host", `"first":4,"last":2,`), 1},
		"an empty file attached": {func(r *resigned) {
			attach(`{"name":"report/x","bytes":0,"sha256":"` + empty + `"}`)(r)
			r.files = func(f map[string][]byte, _ *tree) { f["report/x"] = nil }
		}, 1},
		"an empty file attached, not there": {attach(`{"name":"report/x","bytes":0,"sha256":"` + empty + `"}`), 1},
		"a file of no digest attached":      {attach(`{"name":"report/x","bytes":0,"sha256":""}`), 1},
		"a file of -1 bytes attached":       {attach(`{"name":"report/x","bytes":-1,"sha256":"` + empty + `"}`), 1},
		"rotations swapped":                 {rotate(third, rotationOf(second, third, later), rotationOf(key, second, later)), 1},
		"rotations in a circle":             {rotate(second, rotationOf(key, second, later), rotationOf(second, key, later)), 0},
		"rotations to one key":              {rotate(third, rotationOf(key, third, later), rotationOf(second, third, later)), 0},
		"a rotation that stands twice": {func(r *resigned) {
			rotate(second, rotationOf(key, second, later), rotationOf(key, second, later))(r)
			r.by[two] = key
		}, 1},
		"two successors": {func(r *resigned) {
			rotate(second, rotationOf(key, second, later), rotationOf(key, third, later))(r)
			r.by[two] = key
		}, 1},
		"a rotation to itself":           {rotate(key, rotationOf(key, key, later)), 1},
		"retired ten minutes before":     {rotate(key, rotationOf(key, second, "2026-01-02T02:54:05Z")), 0},
		"retired a nanosecond earlier":   {rotate(key, rotationOf(key, second, "2026-01-02T02:54:04.999999999Z")), 1},
		"retired in the year 1":          {rotate(key, rotationOf(key, second, "0001-01-01T00:00:00Z")), 1},
		"a line more in the checkpoint":  {func(r *resigned) { r.checkpoint = func(text string) string { return text + "more\n" } }, 1},
		"a checkpoint of size 0":         {checkpoint("\n2\n", "\n0\n"), 1},
		"a checkpoint of size 02":        {checkpoint("\n2\n", "\n02\n"), 1},
		"a checkpoint of size 2^64+2":    {checkpoint("\n2\n", "\n18446744073709551618\n"), 1},
		"a checkpoint of another origin": {checkpoint("custody\n", "custody2\n"), 1},
		"a checkpoint signed twice":      {func(r *resigned) { r.cosign = []note.Signer{key} }, 1},
		"a checkpoint signed by another": {func(r *resigned) { r.cosign = []note.Signer{second} }, 0},
	} {
		r := plainRun(key)
		r.notes = map[string]string{}
		c.change(&r)
		if got, err := j.judge(title, r.pack(t), trust, "--key", key.Public); got != c.want {
			t.Errorf("%s: verify: %d, %v; want %d", title, got, err, c.want)
		}
	}
}

// TestRedoSignedTimes: all agree on records and seals that state the first or the last times there are.
func TestRedoSignedTimes(t *testing.T) {
	t.Parallel()
	j := newJudges(t)
	key := signerOf(t, "custody")
	now := time.Date(2026, 1, 2, 3, 6, 0, 0, time.UTC)
	w := prooftest.NewWitness(t, "witness.example").On(now)
	trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier())), Witnesses: []note.Verifier{w}, Quorum: 1}
	for text, want := range map[string]int{
		"0001-01-01T00:00:00Z": 1, "0001-01-01T00:00:00.000000001Z": 1, "2026-01-01T03:05:59.999999999Z": 1,
		"2026-01-01T03:06:00Z": 0, "9999-12-31T23:59:59.999999999Z": 0,
	} {
		written, followed, sealed := plainRun(key), plainRun(key), plainRun(key)
		written.segments[0][1] = at(2, text)
		followed.segments[0][0], followed.segments[0][1] = at(1, text), at(2, "2026-01-02T03:04:05Z")
		sealed.put(0, "2026-01-02T03:05:00Z", text)
		for title, r := range map[string]resigned{"a record": written, "the first record": followed, "the seal": sealed} {
			r.cosign = []note.Signer{w}
			title += " of " + text
			arguments := []string{"--key", key.Public, "--witness", w.Key}
			if got, err := j.judge(title, r.pack(t), trust, arguments...); got != want {
				t.Errorf("%s: verify: %d, %v; want %d", title, got, err, want)
			}
			longest, long := trust, 0
			if longest.Within = math.MaxInt64; strings.HasPrefix(text, "0001") {
				long = 1 // 292 years are not enough
			}
			if got, err := j.judge(title+", 292 years", r.pack(t), longest, append(arguments, "--within", "9223372036")...); got != long {
				t.Errorf("%s, 292 years: verify: %d, %v; want %d", title, got, err, long)
			}
		}
	}
}

// TestRedoSignedRecord: all agree on the proofs of records that the holder of the key numbers and places as he likes.
func TestRedoSignedRecord(t *testing.T) {
	t.Parallel()
	j := newJudges(t)
	key := signerOf(t, "custody")
	trust := proof.Trust{Keys: note.VerifierList(must(key.Verifier()))}
	for _, seq := range []uint64{0, 1, 1<<53 + 1, 1<<63 - 1, 1 << 63, math.MaxUint64} {
		for state, want := range map[proof.State]int{proof.StateOpen: 2, proof.StateSealed: 2, proof.StateLogged: 0} {
			if seq == 0 || seq > 1<<63-1 {
				want = 1
			}
			for _, erased := range []bool{false, true} {
				if erased && state == proof.StateOpen {
					continue
				}
				title := fmt.Sprintf("%s seq %d, erased %v", state, seq, erased)
				data := must(documentOf(t, key, state, seq, erased).Encode())
				if got, err := j.judge(title, data, trust, "--key", key.Public); got != want {
					t.Errorf("%s: verify: %d, %v; want %d", title, got, err, want)
				}
			}
		}
	}
	for size, want := range map[string]int{"0": 0, "1": 1, "2": 1, "18446744073709551615": 1} {
		trust.Since = sign(fmt.Sprintf("custody\n%s\n%s\n", size, base64Of(merkle.Root(nil))), key)
		kept := filepath.Join(t.TempDir(), "kept")
		if err := os.WriteFile(kept, trust.Since, 0o600); err != nil {
			t.Fatal(err)
		}
		data := must(documentOf(t, key, proof.StateLogged, 1, false).Encode())
		if got, err := j.judge("since "+size, data, trust, "--key", key.Public, "--since", kept); got != want {
			t.Errorf("since size %s: verify: %d, %v; want %d", size, got, err, want)
		}
	}
}

// documentOf is the proof of a run's only record.
func documentOf(t *testing.T, key hostkey.Key, state proof.State, seq uint64, erased bool) proof.RecordProof {
	p := proof.RecordProof{Type: "custody record proof", V: 1, Run: "r-1", Seq: seq, State: state, LeafRule: "SHA-256(0x00 || salt || record)", Leaf: merkle.Hash{7}}
	var entries [][]byte
	if erased {
		p.Erasure = &proof.LoggedNote{Note: string(sign(erasureOf(seq, p.Leaf, "output"), key))}
		entries = append(entries, statement.ErasureLeaf("r-1", seq, statement.Digest([]byte(p.Erasure.Note))))
	} else {
		p.Record, p.Salt = shown("r-1", seq, "")[29:], make([]byte, 16)
		p.Leaf = merkle.LeafHash([16]byte{}, p.Record)
	}
	if state == proof.StateOpen {
		return p
	}
	r := plainRun(key)
	r.segments = [][][]byte{{gone("CWE1", p.Leaf, min(seq, 1<<63-1), "r-1")}}
	var manifest string
	r.manifest = func(_ int, text string) string { manifest = text; return text }
	r.packed(t)
	p.Manifest = &proof.LoggedNote{Note: string(sign(manifest, key))}
	p.Segment = &proof.AuditPath{}
	if state == proof.StateSealed {
		return p
	}
	entries = slices.Insert(entries, 0, statement.ManifestLeaf("r-1", 0, statement.Digest([]byte(p.Manifest.Note))))
	log := &tree{signer: key}
	for _, e := range entries {
		log.add(e)
	}
	p.Checkpoint = string(log.publish())
	for i, n := range []*proof.LoggedNote{p.Manifest, p.Erasure} {
		if n != nil {
			n.Log = &proof.AuditPath{Index: uint64(i), Path: must(log.Inclusion(t.Context(), uint64(i), uint64(len(entries))))}
		}
	}
	return p
}
