package proof

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// The format of frames, as package wal documents it. It is defined here again, because the verifier should not
// share code with the writer.
const (
	frameMagic  = "CWF1"
	erasedMagic = "CWE1"
	frameBody   = 12 // offset of the checksummed bytes
	frameRecord = 29 // offset of the record
	erasedRun   = 41 // offset of the run's name in an erased frame

)

// proven is a frame whose leaf is the signed one.
type proven struct {
	seq    uint64
	leaf   merkle.Hash
	record []byte // nil if it was erased or is withheld
	// withheld is set if the exporter of a bundle withheld the record.
	withheld bool
}

// walker reads the frames of a run's segments. It reuses its buffers and is
// not safe for concurrent use.
type walker struct {
	head   []byte // of every record of the run, up to its seq
	run    string
	table  *crc32.Table
	frames []proven
}

func newWalker(run string) *walker {
	return &walker{head: []byte(`{"v":1,"run":"` + run + `","seq":`), run: run, table: crc32.MakeTable(crc32.Castagnoli)}
}

// walk returns the frames of a segment if all match the leaves, which the caller has compared with the signed root.
// Otherwise compare finds the difference. The frames are valid until the next call and share memory with data.
func (w *walker) walk(data []byte, leaves []merkle.Hash) ([]proven, bool) {
	w.frames = w.frames[:0]
	for _, leaf := range leaves {
		if len(data) < frameRecord {
			return nil, false
		}
		length := binary.LittleEndian.Uint32(data[4:])
		if length > wal.MaxRecord || int(length) > len(data)-frameRecord {
			return nil, false
		}
		f, ok := w.frame(data[:frameRecord+int(length)], leaf)
		if !ok {
			return nil, false
		}
		w.frames = append(w.frames, f)
		data = data[frameRecord+int(length):]
	}
	return w.frames, len(data) == 0
}

func (w *walker) frame(b []byte, leaf merkle.Hash) (f proven, ok bool) {
	sum := crc32.Update(crc32.Checksum(b[4:8], w.table), w.table, b[frameBody:])
	if sum != binary.LittleEndian.Uint32(b[8:]) {
		return f, false
	}
	f.leaf = leaf
	switch string(b[:4]) {
	case frameMagic:
		f.record = b[frameRecord:]
		f.seq, ok = w.seq(f.record)
		return f, ok && b[frameBody] == 0 && sha256.Sum256(b[frameBody:]) == leaf
	case erasedMagic, withheldMagic:
		f.seq, ok = w.erased(b, leaf)
		f.withheld = string(b[:4]) == withheldMagic
		return f, ok
	}
	return f, false
}

// seq parses the seq of a record that begins like all records of the run.
func (w *walker) seq(record []byte) (uint64, bool) {
	rest, ok := bytes.CutPrefix(record, w.head)
	if !ok || len(rest) == 0 || rest[0] == '0' {
		return 0, false
	}
	n := len(rest) - len(bytes.TrimLeft(rest, "0123456789"))
	if n == len(rest) || rest[n] != ',' {
		return 0, false
	}
	if n > 18 { // may not fit
		seq, err := strconv.ParseInt(string(rest[:n]), 10, 64)
		return uint64(seq), err == nil
	}
	var seq uint64
	for _, c := range rest[:n] {
		seq = seq*10 + uint64(c-'0')
	}
	return seq, n > 0
}

// erased parses the body of an erased record's frame: leaf, seq, the run's name, zeros.
func (w *walker) erased(b []byte, leaf merkle.Hash) (uint64, bool) {
	body := b[frameBody:]
	end := erasedRun + len(w.run)
	if len(body) < end || merkle.Hash(body) != leaf || int(body[erasedRun-1]) != len(w.run) || string(body[erasedRun:end]) != w.run {
		return 0, false
	}
	for _, c := range body[end:] {
		if c != 0 {
			return 0, false
		}
	}
	seq := binary.LittleEndian.Uint64(body[32:])
	return seq, seq > 0 && seq <= statement.MaxSeq
}

const withheldMagic = "CWH1" // of a frame like that of an erased record, for a record that the exporter withheld

// goneBody returns the body of a frame without its record: leaf, seq, run, zeros.
func goneBody(leaf merkle.Hash, seq uint64, run string, size int) []byte {
	body := make([]byte, size)
	copy(body, leaf[:])
	binary.LittleEndian.PutUint64(body[32:], seq)
	body[erasedRun-1] = byte(len(run))
	copy(body[erasedRun:], run)
	return body
}

// unmask returns a segment in which withheld records look erased, for readers without support for
// bundles, and the offsets of those frames. A frame's checksum does not cover the magic.
func unmask(data []byte) (same []byte, masked map[int64]bool) {
	masked = map[int64]bool{}
	for at := 0; len(data)-at >= frameRecord; {
		if string(data[at:at+4]) == withheldMagic {
			if len(masked) == 0 {
				data = slices.Clone(data)
			}
			copy(data[at:], erasedMagic)
			masked[int64(at)] = true
		}
		length := int(binary.LittleEndian.Uint32(data[at+4:]))
		if length > wal.MaxRecord {
			break
		}
		at += frameRecord + length
	}
	return data, masked
}
