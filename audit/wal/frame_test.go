package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit/wal"
)

// FuzzReader reads arbitrary input: frames lie within the input and match its
// bytes, errors are typed, and reading ends.
func FuzzReader(f *testing.F) {
	k := newKey(f)
	c := crashedRun(f, k)
	data, err := os.ReadFile(c.open)
	check(f, err)
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add(erasedSegment(f, k))
	f.Add([]byte("CWF1\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := wal.NewReader("fuzz", bytes.NewReader(data))
		for range len(data) + 2 {
			f, err := r.Next()
			if err == io.EOF {
				return
			}
			var bad *wal.FrameError
			switch {
			case errors.As(err, &bad):
				if errors.Is(err, wal.ErrChecksum) || errors.Is(err, wal.ErrHead) || errors.Is(err, wal.ErrErased) {
					continue
				}
				if _, again := r.Next(); again != err {
					t.Fatalf("after %v came %v", err, again)
				}
				return
			case err != nil:
				t.Fatalf("untyped error %v", err)
			}
			raw := data[f.Offset : f.Offset+f.Size()]
			if f.Erased {
				if f.Bytes != nil || f.Seq == 0 || !bytes.Contains(raw, []byte(f.Run)) || f.Salt != [16]byte{} {
					t.Fatalf("erased frame %+v is not what stands at %d", f, f.Offset)
				}
				continue
			}
			if !bytes.HasSuffix(raw, f.Bytes) || f.Seq == 0 || !strings.HasPrefix(string(f.Bytes), `{"v":1,"run":"`+f.Run+`"`) {
				t.Fatalf("frame %+v is not what stands at %d", f, f.Offset)
			}
		}
		t.Fatal("the reader does not end")
	})
}

func TestFrameErrors(t *testing.T) {
	k := newKey(t)
	c := crashedRun(t, k)
	data, err := os.ReadFile(c.open)
	check(t, err)
	second := bounds(t, data)[0]
	change := func(at int, b byte) []byte {
		d := bytes.Clone(data)
		d[second+at] = b
		return d
	}
	for name, c := range map[string]struct {
		data []byte
		want error
		on   bool // reading continues after it
	}{
		"magic":          {change(0, 'X'), wal.ErrMagic, false},
		"length":         {change(7, 0xff), wal.ErrLength, false},
		"checksum":       {change(9, data[second+9]+1), wal.ErrChecksum, true},
		"record":         {change(60, 0), wal.ErrChecksum, true},
		"torn":           {data[:second+40], wal.ErrTorn, false},
		"header":         {data[:second+5], wal.ErrTorn, false},
		"length too far": {change(6, 0x10), wal.ErrTorn, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := wal.NewReader("x.seg", bytes.NewReader(c.data))
			_, err := r.Next()
			check(t, err)
			_, err = r.Next()
			var bad *wal.FrameError
			if !errors.Is(err, c.want) || !errors.As(err, &bad) || bad.Index != 1 || bad.Offset != int64(second) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if _, err = r.Next(); (err == nil) != c.on {
				t.Errorf("and then %v", err)
			}
		})
	}
	for _, err := range wal.ReadSegment(filepath.Join(t.TempDir(), "none")) {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no such segment: %v", err)
		}
	}
}

func TestNames(t *testing.T) {
	for _, seq := range []uint64{1, 873, 1<<64 - 1} {
		name := wal.FileName(seq, wal.SegmentSuffix)
		if got, ok := wal.ParseName(name, wal.SegmentSuffix); !ok || got != seq {
			t.Errorf("%s: %d, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "1.seg", "99999999999999999999.seg", "0000000000000000000x.seg", "00000000000000000001.leaves"} {
		if first, ok := wal.ParseName(name, wal.SegmentSuffix); ok {
			t.Errorf("%q is taken for segment %d", name, first)
		}
	}
}

// sum sets the correct checksum of a frame.
func sum(frame []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	binary.LittleEndian.PutUint32(frame[8:], crc32.Update(crc32.Checksum(frame[4:8], table), table, frame[12:]))
}

func itoa(n int) string { return strconv.Itoa(n) }
