package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Closing states how a run's record ended; it is in the last manifest.
type Closing string

// The ways a record ends.
const (
	Open        Closing = ""            // the record continues in the next segment
	Sealed      Closing = "sealed"      // the run ended normally
	Interrupted Closing = "interrupted" // the process died; Recover closed it
)

// Segment is a finished segment, as passed to a Sealer. Count may be 0 only in the closing one; First is then the next
// unused seq.
type Segment struct {
	Run         string
	Index       uint64 // 0 for a run's first segment
	First, Last uint64
	Count       uint64
	Bytes       int64
	Leaves      [][32]byte // SHA-256(0x00 || salt || record), in order
	Losses      Losses     // losses that the gap records of this segment declare
	Time        time.Time  // of sealing, UTC
	Closing     Closing
	Prev        []byte // the preceding manifest, nil for the first
}

// Losses are the declared losses by stage.
type Losses map[string]Loss

// Loss is the loss at one stage.
type Loss struct {
	Gaps   uint64 `json:"gaps"`   // gap records
	Events uint64 `json:"events"` // lost events, as far as they could be counted
	Bytes  int64  `json:"bytes"`  // lost bytes of output
}

// Sealer makes a segment verifiable. The Log writes the leaves that it
// returns, then the manifest. Calls are not concurrent.
type Sealer interface {
	Seal(Segment) (leaves, manifest []byte, err error)
	// Parse parses index, range and closing of a manifest that Seal returned.
	Parse(manifest []byte) (Segment, error)
}

// gapMark finds gap records without decoding all others. The kind is one of
// the first fields of an audit.Event, before any that a guest controls.
var gapMark = []byte(`"kind":"gap"`)

const gapWithin = 256

// Add counts the record if it is a gap.
func (l Losses) Add(record []byte) error {
	if !bytes.Contains(record[:min(len(record), gapWithin)], gapMark) {
		return nil
	}
	var r audit.Record
	if err := json.Unmarshal(record, &r); err != nil {
		return fmt.Errorf("decode gap record: %w", err)
	}
	if r.Gap == nil || r.Kind != audit.KindGap {
		return nil
	}
	loss := l[string(r.Gap.Stage)]
	loss.Gaps++
	loss.Events += r.Gap.Count
	loss.Bytes += r.Gap.Bytes
	l[string(r.Gap.Stage)] = loss
	return nil
}

func frameSize(frame []byte) int {
	return recordAt + int(binary.LittleEndian.Uint32(frame[4:]))
}

// fit returns the length in bytes of the complete frames at the front of buf that fit into room bytes, at least one frame
// if force is set.
func fit(buf []byte, room int64, force bool) int {
	n := 0
	for n < len(buf) {
		size := frameSize(buf[n:])
		if int64(n+size) > room && (n > 0 || !force) {
			break
		}
		n += size
	}
	return n
}

// The names of a segment's files.
const (
	SegmentSuffix  = ".seg"
	LeavesSuffix   = ".leaves"
	ManifestSuffix = ".manifest"
	tornSuffix     = ".torn"
	TempSuffix     = ".tmp"     // a file that is being written, after its own suffix
	erasedSuffix   = ".erased"  // a segment with an erased record, not yet renamed into place
	erasingSuffix  = ".erasing" // the segment before the erasure, to be overwritten
)

// IsFile reports whether name is one that a log gives to a file, except for its lock.
func IsFile(name string) bool {
	name = strings.TrimSuffix(name, TempSuffix)
	for _, suffix := range []string{SegmentSuffix, LeavesSuffix, ManifestSuffix} {
		if _, ok := ParseName(name, suffix); ok {
			return true
		}
	}
	start, torn := strings.CutSuffix(name, tornSuffix)
	first, offset, cut := strings.Cut(start, ".")
	_, ok := ParseName(first, "")
	_, err := strconv.ParseUint(offset, 10, 63)
	return torn && cut && ok && err == nil
}

// FileName returns the name of the file with that suffix of the segment that
// begins with seq first.
func FileName(first uint64, suffix string) string {
	return fmt.Sprintf("%020d%s", first, suffix)
}

// ParseName returns the first seq if name is a segment's file with that suffix.
func ParseName(name, suffix string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		d := uint64(c - '0')
		if c < '0' || c > '9' || first > (1<<64-1-d)/10 {
			return 0, false
		}
		first = first*10 + d
	}
	return first, true
}

// Segments returns the paths of the segments in dir in order, sealed or not.
func Segments(dir string) ([]string, error) {
	names, err := Disk{}.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, name := range names {
		if _, ok := ParseName(name, SegmentSuffix); ok {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths, nil
}
