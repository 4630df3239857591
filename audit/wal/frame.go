package wal

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"path/filepath"
	"strconv"

	"github.com/custody-project/custody/internal/regular"
)

const (
	magic      = "CWF1"
	erasedMark = "CWE1" // instead of magic: the record was erased
	leafPrefix = 0x00   // RFC 6962 section 2.1
	saltSize   = 16
	bodyAt     = 12                    // where the checksummed and hashed body begins
	recordAt   = bodyAt + 1 + saltSize // where the record begins
	headFormat = `{"v":1,"run":"%s","seq":`

	// MaxRecord is the maximum length of a record, in bytes.
	MaxRecord = 4 << 20
	// MaxSegment is the maximum of Options.SegmentBytes. A segment is
	// longer only if its single record is.
	MaxSegment = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of a frame. A FrameError has the position.
var (
	ErrTorn     = errors.New("frame is cut off")
	ErrMagic    = errors.New("frame does not begin with its magic")
	ErrLength   = errors.New("frame's length is out of bounds")
	ErrChecksum = errors.New("frame's checksum does not match")
	ErrHead     = errors.New("record has no valid head (v, run, seq)")
	ErrErased   = errors.New("erased frame has other contents than run, seq and leaf")
)

// FrameError is a frame that cannot be read.
type FrameError struct {
	Name   string // of the segment
	Offset int64  // of the frame in bytes
	Index  int    // of the frame, from 0
	Err    error
}

// Error implements error.
func (e *FrameError) Error() string {
	return fmt.Sprintf("%s: frame %d at byte %d: %v", e.Name, e.Index, e.Offset, e.Err)
}

// Unwrap returns one of the errors above.
func (e *FrameError) Unwrap() error { return e.Err }

// Frame is one record as stored in a segment.
type Frame struct {
	Run   string
	Seq   uint64
	Salt  [saltSize]byte // zero when Erased
	Bytes []byte         // the record: the exact JSON that was hashed; nil when Erased
	// Erased is set if the record was erased: only its position and leaf are left. This package does not prove that the leaf
	// is the one that was sealed: compare it with the segment's leaves.
	Erased bool

	Offset int64 // of the frame in its segment
	body   []byte
	leaf   [32]byte // of an erased record
}

// Leaf returns SHA-256(0x00 || salt || record), the record's leaf in its
// segment's Merkle tree; for an erased record, the stored leaf.
func (f Frame) Leaf() [32]byte {
	if f.Erased {
		return f.leaf
	}
	return sha256.Sum256(f.body)
}

// Size returns the frame's length in the segment in bytes.
func (f Frame) Size() int64 { return int64(bodyAt + len(f.body)) }

// appendFrame adds a frame to dst. The head is headFormat filled in; body is the sealed object.
func appendFrame(dst, salt, head []byte, seq uint64, body []byte) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, leafPrefix)
	dst = append(dst, salt...)
	dst = append(dst, head...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, ',')
	dst = append(dst, body[1:]...)
	frame := dst[start:]
	binary.LittleEndian.PutUint32(frame[4:], uint32(len(frame)-recordAt))
	binary.LittleEndian.PutUint32(frame[8:], checksum(frame))
	return dst
}

func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[4:8], castagnoli), castagnoli, frame[bodyAt:])
}

// parseHead parses run and seq at the beginning of a record.
func parseHead(record []byte) (run []byte, seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(record, []byte(`{"v":1,"run":"`))
	if !ok {
		return nil, 0, false
	}
	run, rest, ok = bytes.Cut(rest, []byte(`","seq":`))
	if !ok || !validRun(string(run)) {
		return nil, 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 21)], []byte(","))
	if !ok || len(digits) == 0 || digits[0] == '0' {
		return nil, 0, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return run, seq, err == nil && seq > 0
}

// validRun reports whether a run's id may be used in a head and in a file name.
func validRun(run string) bool {
	for _, c := range []byte(run) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return run != "" && len(run) <= 128
}

// Reader reads the frames of one segment in order. It is not safe for concurrent use.
type Reader struct {
	name   string
	in     *bufio.Reader
	offset int64
	index  int
	run    string
	err    error
}

// NewReader reads frames from r; errors contain name.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, in: bufio.NewReaderSize(r, 64<<10)}
}

// Offset returns the offset after the last frame that Next read.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the next frame, io.EOF at a clean end, or a *FrameError. After
// ErrChecksum, ErrHead and ErrErased the next call continues after the bad frame,
// whose length was plausible; any other error is final.
func (r *Reader) Next() (Frame, error) {
	if r.err != nil {
		return Frame{}, r.err
	}
	f, size, err := r.next()
	switch {
	case err == nil:
	case err == io.EOF:
		r.err = io.EOF
	case goesOn(err):
		f, err = Frame{}, &FrameError{Name: r.name, Offset: r.offset, Index: r.index, Err: err}
	default:
		r.err = &FrameError{Name: r.name, Offset: r.offset, Index: r.index, Err: err}
		err = r.err
	}
	r.offset += size
	if size > 0 {
		r.index++
	}
	return f, err
}

// goesOn reports whether the position of the next frame is known after err.
func goesOn(err error) bool {
	return errors.Is(err, ErrChecksum) || errors.Is(err, ErrHead) || errors.Is(err, ErrErased)
}

// next returns the frame and the number of bytes to skip, 0 if that is unknown.
func (r *Reader) next() (Frame, int64, error) {
	var header [bodyAt]byte
	if n, err := io.ReadFull(r.in, header[:]); err != nil {
		return Frame{}, 0, readError(err, n)
	}
	erased := string(header[:4]) == erasedMark
	if !erased && string(header[:4]) != magic {
		return Frame{}, 0, ErrMagic
	}
	length := binary.LittleEndian.Uint32(header[4:])
	if length > MaxRecord {
		return Frame{}, 0, fmt.Errorf("%w: %d bytes, at most %d", ErrLength, length, MaxRecord)
	}
	body, err := r.body(int(length) + 1 + saltSize)
	if err != nil {
		return Frame{}, 0, err
	}
	size := int64(bodyAt + len(body))
	sum := crc32.Update(crc32.Checksum(header[4:8], castagnoli), castagnoli, body)
	if sum != binary.LittleEndian.Uint32(header[8:]) || !erased && body[0] != leafPrefix {
		return Frame{}, size, ErrChecksum
	}
	f := Frame{Offset: r.offset, body: body}
	err = r.parse(&f, erased)
	return f, size, err
}

// parse parses f's body.
func (r *Reader) parse(f *Frame, erased bool) error {
	var run []byte
	var ok bool
	if erased {
		f.Erased = true
		if run, f.Seq, f.leaf, ok = parseErased(f.body); !ok {
			return ErrErased
		}
	} else {
		f.Bytes = f.body[1+saltSize:]
		copy(f.Salt[:], f.body[1:])
		if run, f.Seq, ok = parseHead(f.Bytes); !ok {
			return ErrHead
		}
	}
	if string(run) != r.run {
		r.run = string(run)
	}
	f.Run = r.run
	return nil
}

// body reads n bytes. It allocates memory only as input arrives.
func (r *Reader) body(n int) ([]byte, error) {
	if n <= r.in.Size() {
		b := make([]byte, n)
		got, err := io.ReadFull(r.in, b)
		if err != nil {
			return nil, readError(err, got+1)
		}
		return b, nil
	}
	b, err := io.ReadAll(io.LimitReader(r.in, int64(n)))
	if err == nil && len(b) < n {
		err = ErrTorn
	}
	return b, err
}

func readError(err error, got int) error {
	switch {
	case err == io.EOF && got == 0:
		return io.EOF
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return ErrTorn
	}
	return err
}

// ReadSegment yields the frames of the segment at path. It stops after the first
// error; the last frame of the active segment can be ErrTorn.
func ReadSegment(path string) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		file, err := regular.Open(path)
		if err != nil {
			yield(Frame{}, err)
			return
		}
		defer file.Close()
		NewReader(path, file).each(yield)
	}
}

// Frames yields the frames of the log in dir, in order.
func Frames(files FS, dir string) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		names, err := files.ReadDir(dir)
		if err != nil {
			yield(Frame{}, err)
			return
		}
		for _, name := range names {
			if _, ok := ParseName(name, SegmentSuffix); !ok {
				continue
			}
			path := filepath.Join(dir, name)
			data, err := files.ReadFile(path)
			if err != nil {
				yield(Frame{}, err)
				return
			}
			if !NewReader(path, bytes.NewReader(data)).each(yield) {
				return
			}
		}
	}
}

// ReadFrames yields the frames of a segment's contents; errors contain name.
func ReadFrames(name string, data []byte) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) { NewReader(name, bytes.NewReader(data)).each(yield) }
}

// each passes all frames to yield, and reports whether it reached the end.
func (r *Reader) each(yield func(Frame, error) bool) bool {
	for {
		f, err := r.Next()
		if err == io.EOF {
			return true
		}
		if !yield(f, err) || err != nil {
			return false
		}
	}
}

// salts returns random salts, which it reads from the kernel 256 at a time.
type salts struct {
	pool [256 * saltSize]byte
	left int
}

func (s *salts) next() []byte {
	if s.left == 0 {
		rand.Read(s.pool[:]) // never fails: see crypto/rand
		s.left = len(s.pool)
	}
	s.left -= saltSize
	return s.pool[s.left : s.left+saltSize]
}
