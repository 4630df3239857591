package proof

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/wal"
)

// Row is a record as stored in a store. Erased is the leaf of an erased record, whose Salt
// and Body are then empty; otherwise nil. store.Frame converts to it.
type Row struct {
	Seq    uint64
	Salt   [16]byte
	Body   []byte
	Erased *[32]byte
}

// Rebuild writes a run's directory from a store's copy: its signed manifests in order and its rows in order of
// seq. dir must not exist; it appears complete or not at all. Records that were not erased are byte for byte what the
// host wrote. An erased record's frame can have another length if several of one segment were erased: the manifest signs
// the sum of their lengths. Rebuild verifies only what it needs to write the files; Verify does the rest. A store has no
// statements of erasures; the caller copies them into dir.
func Rebuild(ctx context.Context, dir string, manifests [][]byte, rows iter.Seq2[Row, error]) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rebuild %s: it already exists", dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+".")
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	defer os.RemoveAll(temp)
	next, stop := iter.Pull2(rows)
	defer stop()
	b := rebuilder{dir: temp, next: next}
	for _, signed := range manifests {
		if err := errors.Join(ctx.Err(), b.segment(signed)); err != nil {
			return fmt.Errorf("rebuild: %w", err)
		}
	}
	if row, err, more := next(); more {
		return fmt.Errorf("rebuild: %w", errors.Join(err, fmt.Errorf("no manifest signs for seq %d", row.Seq)))
	}
	if err := errors.Join(durable.SyncDir(temp), os.Rename(temp, dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	return nil
}

// rebuilder writes one run.
type rebuilder struct {
	dir  string
	next func() (Row, error, bool)
}

// segment writes the three files of one segment.
func (b *rebuilder) segment(signed []byte) error {
	m, err := statement.ReadManifest(signed)
	if err != nil {
		return err
	}
	if m.Count > 0 {
		rows, err := b.rows(m)
		if err != nil {
			return err
		}
		data, leaves, err := frameAll(m, rows)
		if err != nil {
			return err
		}
		if err := b.write(m.First, wal.SegmentSuffix, data); err != nil {
			return err
		}
		if err := b.write(m.First, wal.LeavesSuffix, leaves); err != nil {
			return err
		}
	}
	return b.write(m.First, wal.ManifestSuffix, signed)
}

// write durably writes a file.
func (b *rebuilder) write(first uint64, suffix string, data []byte) error {
	f, err := os.OpenFile(filepath.Join(b.dir, wal.FileName(first, suffix)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rows returns the rows of one segment.
func (b *rebuilder) rows(m statement.Manifest) (rows []Row, err error) {
	var size int64
	for uint64(len(rows)) < m.Count {
		row, err, ok := b.next()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, fmt.Errorf("segment %d has %d records, the store %d of them", m.Segment, m.Count, len(rows))
		case row.Seq < m.First || row.Seq > m.Last:
			return nil, fmt.Errorf("segment %d has seqs %d to %d, the store's next is %d", m.Segment, m.First, m.Last, row.Seq)
		}
		if size += int64(len(row.Body)); size > maxSegment {
			return nil, fmt.Errorf("segment %d: the store has more than %d bytes of it", m.Segment, maxSegment)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// frameAll returns a segment's file and its leaves.
func frameAll(m statement.Manifest, rows []Row) (data, leaves []byte, err error) {
	room, gone := m.Bytes, int64(0)
	for _, r := range rows {
		if r.Erased != nil {
			room -= frameBody + erasedRun + int64(len(m.Run))
			gone++
		} else {
			room -= frameRecord + int64(len(r.Body))
		}
	}
	if room < 0 || room > 0 && gone == 0 || room > gone*wal.MaxRecord {
		return nil, nil, fmt.Errorf("segment %d: the store's records do not make up its %d bytes", m.Segment, m.Bytes)
	}
	for _, r := range rows {
		if r.Erased == nil {
			data = appendFrame(data, r.Salt, r.Body)
			leaf := merkle.LeafHash(r.Salt, r.Body)
			leaves = append(leaves, leaf[:]...)
			continue
		}
		size := erasedRun + int64(len(m.Run)) + min(room, wal.MaxRecord-int64(erasedRun+len(m.Run)))
		body := goneBody(*r.Erased, r.Seq, m.Run, int(size))
		room -= int64(len(body) - erasedRun - len(m.Run))
		data = appendBody(data, erasedMagic, body)
		leaves = append(leaves, r.Erased[:]...)
	}
	if room != 0 {
		return nil, nil, fmt.Errorf("segment %d: %d bytes of erased records are not accounted for", m.Segment, room)
	}
	return data, leaves, nil
}

func appendFrame(dst []byte, salt [16]byte, record []byte) []byte {
	return appendBody(dst, frameMagic, append(append([]byte{0}, salt[:]...), record...))
}

func appendBody(dst []byte, magic string, body []byte) []byte {
	dst = append(dst, magic...)
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(body)-(frameRecord-frameBody)))
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(length, table), table, body)
	dst = append(dst, length...)
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return append(dst, body...)
}
