package docs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/hostkey"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// resigned is a run that the holder of the signing key writes as he likes: all that is signed is signed again, and
// everything signed is in his log. A nil function changes nothing.
type resigned struct {
	key        hostkey.Key
	run        string
	segments   [][][]byte                      // frames
	manifest   func(i int, text string) string // before it is signed
	notes      map[string]string               // texts of other statements by file; HEAD stands for the run's head
	by         map[string]note.Signer          // whose statement it is, if it is not the key's
	log        [][]byte                        // entries that come first
	more       [][]byte                        // and last
	cosign     []note.Signer                   // of the checkpoint
	checkpoint func(text string) string        // before it is signed
	files      func(map[string][]byte, *tree)  // before the trailer
	trailer    func(text string) string        // before it is signed
}

// sign signs a text of any form.
func sign(text string, by ...note.Signer) []byte {
	b := []byte(text + "\n")
	for _, s := range by {
		raw := append(binary.BigEndian.AppendUint32(nil, s.KeyHash()), must(s.Sign([]byte(text)))...)
		b = fmt.Appendf(b, "\u2014 %s %s\n", s.Name(), base64.StdEncoding.EncodeToString(raw))
	}
	return b
}

// frame is one of any kind.
func frame(magic string, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(body)-17))
	table := crc32.MakeTable(crc32.Castagnoli)
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b[4:8], table), table, body))
	return append(b, body...)
}

// gone is the frame of a record that is not there.
func gone(magic string, leaf merkle.Hash, seq uint64, run string) []byte {
	body := append(binary.LittleEndian.AppendUint64(leaf[:], seq), byte(len(run)))
	body = append(body, run...)
	return frame(magic, append(body, make([]byte, 40)...))
}

// shown is the frame of a record of output, or of the kind and the payload that rest begins with.
func shown(run string, seq uint64, rest string) []byte {
	if rest == "" {
		rest = `"time":"2026-01-02T03:04:05Z","observer":"host","kind":"output","output":{"stream":"stdout","offset":0,"text":"x"}}`
	}
	return frameOf(fmt.Appendf(nil, `{"v":1,"run":"%s","seq":%d,%s`, run, seq, rest))
}

func placeOf(f []byte) (leaf merkle.Hash, seq uint64) {
	if string(f[:4]) != "CWF1" {
		return merkle.Hash(f[12:44]), binary.LittleEndian.Uint64(f[44:])
	}
	if m := seqOf.FindSubmatch(f); m != nil {
		seq, _ = strconv.ParseUint(string(m[1]), 10, 64)
	}
	return sha256.Sum256(f[12:]), seq
}

// pack writes it as a bundle.
func (r resigned) pack(t *testing.T) []byte {
	t.Helper()
	return prooftest.Bundle(r.packed(t)).Pack(t)
}

// packed are the bundle's files.
func (r resigned) packed(t *testing.T) map[string][]byte {
	f := map[string][]byte{"README.txt": []byte("x"), "host.pub": []byte(r.key.Public + "\n")}
	log := &tree{signer: r.key}
	for _, e := range r.log {
		log.add(e)
	}
	entries := map[string][]byte{}
	enter := func(name string, entry []byte) { log.add(entry); entries[name+".tlog-proof"] = entry }
	var prev string
	last := uint64(0)
	for i, frames := range r.segments {
		first, closing := last+1, ""
		var leaves []merkle.Hash
		for j, fr := range frames {
			leaf, seq := placeOf(fr)
			if leaves = append(leaves, leaf); j == 0 {
				first = seq
			}
			last = seq
		}
		if i == len(r.segments)-1 {
			closing = "sealed"
		}
		data := bytes.Join(frames, nil)
		text := fmt.Sprintf(`{"v":1,"run":"%s","segment":%d,"first":%d,"last":%d,"count":%d,"bytes":%d,"prev":"%s","root":"%s","losses":{},"policy_digest":"","ruleset_digest":"","template_digest":"","tier":"qemu-tcg","sealed_at":"2026-01-02T03:05:00Z","closing":"%s"}`,
			r.run, i, first, last, len(frames), len(data), prev, merkle.Root(leaves), closing)
		text = "custody manifest v1\n" + text + "\n"
		if r.manifest != nil {
			text = r.manifest(i, text)
		}
		name := fmt.Sprintf("%020d", first)
		signed := sign(text, r.signer(name+".manifest"))
		prev = statement.Digest(signed).String()
		f[name+".manifest"] = signed
		if len(frames) > 0 {
			f[name+".seg"] = data
			for _, leaf := range leaves {
				f[name+".leaves"] = append(f[name+".leaves"], leaf[:]...)
			}
		}
		enter(name, fmt.Appendf(nil, "custody leaf v1\nmanifest %s %d %s\n", r.run, i, prev))
	}
	for _, name := range slices.Sorted(maps.Keys(r.notes)) {
		f[name] = sign(strings.ReplaceAll(r.notes[name], "HEAD", prev), r.signer(name))
		digest := statement.Digest(f[name])
		switch filepath.Ext(name) {
		case ".erasure":
			enter(name, fmt.Appendf(nil, "custody leaf v1\nerasure %s %s %s\n", r.run, strings.TrimLeft(name[:20], "0"), digest))
		case ".rotation":
			enter(name, statement.RotationLeaf(digest))
		}
	}
	for _, e := range r.more {
		log.add(e)
	}
	r.publish(f, log, entries)
	if r.files != nil {
		r.files(f, log)
	}
	data := bytes.TrimSuffix(prooftest.Bundle(f).Pack(t), make([]byte, 1024))
	text := fmt.Sprintf(`{"v":1,"run":"%s","head":"%s","files":%d,"bytes":%d,"sha256":"%x"}`, r.run, prev, len(f), len(data), sha256.Sum256(data))
	text = "custody trailer v1\n" + text + "\n"
	if r.trailer != nil {
		text = r.trailer(text)
	}
	f["trailer"] = sign(text, r.signer("trailer"))
	return f
}

func (r resigned) signer(name string) note.Signer {
	if s, ok := r.by[name]; ok {
		return s
	}
	return r.key
}

// publish adds the checkpoint and the proofs under it.
func (r resigned) publish(f map[string][]byte, log *tree, entries map[string][]byte) {
	log.publish()
	text, _, _ := strings.Cut(string(log.last), "\n\n")
	text += "\n"
	if r.checkpoint != nil {
		text = r.checkpoint(text)
	}
	f["checkpoint"] = sign(text, append([]note.Signer{r.signer("checkpoint")}, r.cosign...)...)
	for name, entry := range entries {
		index := must(log.Index(context.Background(), entry))
		p := fmt.Appendf(nil, "c2sp.org/tlog-proof@v1\nextra %s\nindex %d\n", base64.StdEncoding.EncodeToString(entry), index)
		for _, h := range must(log.Inclusion(context.Background(), index, uint64(len(log.entries)))) {
			p = append(base64.StdEncoding.AppendEncode(p, h[:]), '\n')
		}
		f[name] = append(append(p, '\n'), f["checkpoint"]...)
	}
}

// plainRun is a run of two segments with nothing wrong in it.
func plainRun(key hostkey.Key) resigned {
	return resigned{key: key, run: "r-1", segments: [][][]byte{{shown("r-1", 1, ""), shown("r-1", 2, "")}, {shown("r-1", 3, "")}}}
}

// judges compares the checkers.
type judges struct {
	t      *testing.T
	others checkers
	path   string
	asked  int
	counts map[int]int
}

func newJudges(t *testing.T) *judges {
	return &judges{t: t, others: newCheckers(t), path: filepath.Join(t.TempDir(), "b"), counts: map[int]int{}}
}

// judge returns verify's status, with which the others have to agree.
func (j *judges) judge(title string, data []byte, trust proof.Trust, arguments ...string) (int, error) {
	j.t.Helper()
	if err := os.WriteFile(j.path, data, 0o600); err != nil {
		j.t.Fatal(err)
	}
	var status int
	var err error
	if data[0] == '{' {
		status, err = oursRecord(data, trust)
	} else {
		status, err = ours(j.t, j.path, trust)
	}
	j.asked++
	j.counts[status]++
	j.others.agree(title, status, err, append([]string{j.path}, arguments...)...)
	return status, err
}

func base64Of(h merkle.Hash) string { return base64.StdEncoding.EncodeToString(h[:]) }
