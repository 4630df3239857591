package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/prooftest"
	"github.com/custody-project/custody/audit/proof/statement"
)

// TestRedoWithheldGap: all checkers report a withheld gap record. custody bundle withholds none, but a host's key could.
func TestRedoWithheldGap(t *testing.T) {
	t.Parallel()
	d := newDiffer(t)
	records := [][]byte{
		[]byte(`{"v":1,"run":"r-1","seq":1,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"run","lifecycle":{"phase":"start"}}`),
		[]byte(`{"v":1,"run":"r-1","seq":2,"time":"2026-01-02T03:04:05Z","observer":"host","kind":"gap","gap":{"stage":"output","count":0,"cause":"x"}}`),
		[]byte(`{"v":1,"run":"r-1","seq":3,"time":"2026-01-02T03:04:05Z","observer":"guest","kind":"output","output":{"stream":"stdout","offset":0,"text":"x"}}`),
	}
	truth := d.write([][][]byte{records})
	for i, want := range []int{0, 1, 0} {
		f := prooftest.Unpack(t, truth)
		var seg []byte
		for at, r := range records {
			frame := frameOf(r)
			if at == i {
				hide(frame, r, uint64(at+1))
			}
			seg = append(seg, frame...)
		}
		f["00000000000000000001.seg"] = seg
		text, _, _ := strings.Cut(string(f["trailer"]), "\n\n")
		trailer := must(statement.ParseTrailer(text + "\n"))
		leaf := merkle.LeafHash([16]byte{}, records[i])
		line := must(json.Marshal(statement.Selected{
			V: 1, Run: trailer.Run, Head: trailer.Head, Records: 3, Withheld: 1, What: "some", Time: time.Unix(1, 0).UTC(),
			Digest: sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, uint64(i+1)), leaf[:]...)),
		}))
		f["selection"] = must(note.Sign(&note.Note{Text: fmt.Sprintf("custody selection v1\n%s\n", line)}, d.key))
		if got := d.judge(fmt.Sprintf("seq %d withheld", i+1), f.Seal(t, d.key).Pack(t), d.arguments); got != want {
			t.Errorf("seq %d withheld: %d, want %d", i+1, got, want)
		}
	}
}

// hide turns a record's frame into that of a withheld record.
func hide(frame, record []byte, seq uint64) {
	leaf := merkle.LeafHash([16]byte{}, record)
	copy(frame, "CWH1")
	body := frame[12:]
	clear(body)
	copy(body, bytes.Join([][]byte{leaf[:], binary.LittleEndian.AppendUint64(nil, seq), {3}, []byte("r-1")}, nil))
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(frame[8:], crc32.Update(crc32.Checksum(frame[4:8], table), table, body))
}
