package ship

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/custody-project/custody/store"
)

// A segment is encoded as one message:
//
//	magic      4 bytes   "CSG2"
//	tenant     text      uvarint length, then the bytes
//	host       text
//	run        text
//	index      uvarint
//	first      uvarint
//	last       uvarint
//	root       32 bytes
//	manifest   text
//	count      uvarint
//	count times:
//	    step   uvarint   seq minus the previous one; the first frame's is seq minus first
//	    length uvarint   of the body, 0 for a record that was erased
//	    salt   16 bytes  and the body's bytes, or
//	    leaf   32 bytes  of the record that was erased
//
// Uvarints are those of encoding/binary, in their shortest form only, so that a
// segment has exactly one encoding. No bytes follow the last frame.
const magic = "CSG2"

// MaxMessage is the maximum size of a message in bytes, with its headers. A segment of the log has
// at most 4 MiB of records and one further record, and so never reaches it.
const MaxMessage = 16 << 20

// maxEncoded leaves space for the headers of a message.
const maxEncoded = MaxMessage - 4<<10

// ErrTooLarge means that a segment does not fit into one message.
var ErrTooLarge = errors.New("segment is larger than the maximum message")

// Encode returns seg as one message.
func Encode(seg store.Segment) ([]byte, error) {
	if err := seg.Check(); err != nil {
		return nil, err
	}
	size := sizeOf(seg)
	if size > maxEncoded {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	b := append(make([]byte, 0, size), magic...)
	b = appendText(b, seg.Tenant)
	b = appendText(b, seg.Host)
	b = appendText(b, seg.Run)
	b = binary.AppendUvarint(b, seg.Index)
	b = binary.AppendUvarint(b, seg.First)
	b = binary.AppendUvarint(b, seg.Last)
	b = append(b, seg.Root[:]...)
	b = appendText(b, seg.Manifest)
	b = binary.AppendUvarint(b, uint64(len(seg.Frames)))
	return appendFrames(b, seg.First, seg.Frames), nil
}

// sizeOf returns an upper bound of the length of seg's message.
func sizeOf(seg store.Segment) int {
	size := len(magic) + len(seg.Tenant) + len(seg.Host) + len(seg.Run) + len(seg.Manifest) + 128
	for _, f := range seg.Frames {
		size += sizeOfFrame(f)
	}
	return size
}

func sizeOfFrame(f store.Frame) int { return len(f.Body) + len([32]byte{}) + 2*binary.MaxVarintLen64 }

// appendFrames appends frames; before is the base of the first one's seq.
func appendFrames(b []byte, before uint64, frames []store.Frame) []byte {
	for _, f := range frames {
		b = binary.AppendUvarint(b, f.Seq-before)
		b = binary.AppendUvarint(b, uint64(len(f.Body)))
		if f.Erased != nil {
			b = append(b, f.Erased[:]...)
		} else {
			b = append(append(b, f.Salt[:]...), f.Body...)
		}
		before = f.Seq
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Decode is the inverse of Encode. The segment's bytes alias message. Errors
// wrap store.ErrMalformed; memory use is proportional to the message.
func Decode(message []byte) (store.Segment, error) {
	d := decoder{rest: message}
	if string(d.bytes(len(magic))) != magic {
		d.fail("it does not begin with " + magic)
	}
	seg := store.Segment{Tenant: string(d.text(store.MaxName)), Host: string(d.text(store.MaxName)), Run: string(d.text(store.MaxRunID))}
	seg.Index, seg.First, seg.Last = d.uvarint(), d.uvarint(), d.uvarint()
	copy(seg.Root[:], d.bytes(len(seg.Root)))
	seg.Manifest = d.text(store.MaxManifest)
	seg.Frames = d.frames(seg.First)
	if len(d.rest) > 0 {
		d.fail("bytes follow its end")
	}
	if d.err != nil {
		return store.Segment{}, d.err
	}
	return seg, seg.Check()
}

// decoder reads from rest. After the first error it returns only zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: message cannot be read: %s", store.ErrMalformed, why)
	}
	d.rest = nil
}

func (d *decoder) bytes(n int) []byte {
	if n > len(d.rest) {
		d.fail("it is truncated")
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || (n > 1 && d.rest[n-1] == 0) {
		d.fail("a number is truncated, too large or not in its shortest form")
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) text(limit int) []byte {
	n := d.uvarint()
	if n > uint64(limit) {
		d.fail("a length exceeds its limit")
		return nil
	}
	return d.bytes(int(n))
}

func (d *decoder) frames(seq uint64) []store.Frame {
	count := d.uvarint()
	const least = 1 + 1 + 16 + 1 // bytes of a frame with a body of one byte
	if count > store.MaxFrames || count > uint64(len(d.rest)/least) {
		d.fail("it has fewer frames than its count")
		return nil
	}
	if count == 0 {
		return nil
	}
	frames := make([]store.Frame, count)
	for i := range frames {
		f := &frames[i]
		step := d.uvarint()
		if seq+step < seq {
			d.fail("a seq is too large")
		}
		seq += step
		f.Seq = seq
		d.record(f)
		if d.err != nil {
			return nil
		}
	}
	return frames
}

func (d *decoder) record(f *store.Frame) {
	n := d.uvarint()
	switch {
	case n > store.MaxBody:
		d.fail("a length exceeds its limit")
	case n > 0:
		copy(f.Salt[:], d.bytes(len(f.Salt)))
		f.Body = d.bytes(int(n))
	default:
		f.Erased = new([32]byte)
		copy(f.Erased[:], d.bytes(len(f.Erased)))
	}
}
