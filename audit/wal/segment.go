package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Closing is how a run's record ended; it is in the last manifest.
type Closing string

// The ways a record ends.
const (
	Open        Closing = ""            // it goes on in the next segment
	Sealed      Closing = "sealed"      // the run came to its end
	Interrupted Closing = "interrupted" // the process died; Recover closed it
)

// Segment is a finished segment, as a Sealer gets it. Count may be 0 in the closing one only; First is then the seq
// that would have come next.
type Segment struct {
	Run         string
	Index       uint64 // 0 for a run's first segment
	First, Last uint64
	Count       uint64
	Bytes       int64
	Leaves      [][32]byte // SHA-256(0x00 || salt || record), in order
	Losses      Losses     // what the gap records in this segment declare
	Time        time.Time  // of sealing, UTC
	Closing     Closing
	Prev        []byte // the manifest of the segment before, nil for the first
}

// Losses are the declared losses by stage.
type Losses map[string]Loss

// Loss is what was lost at one stage.
type Loss struct {
	Gaps   uint64 `json:"gaps"`   // gap records
	Events uint64 `json:"events"` // lost events, as far as they could be counted
	Bytes  int64  `json:"bytes"`  // lost bytes of output
}

// Sealer makes a segment verifiable. It does no I/O; the Log writes what it
// returns, leaves before manifest. Calls come one at a time.
type Sealer interface {
	Seal(Segment) (leaves, manifest []byte, err error)
	// Parse reads back index, range and closing from a manifest of its own making.
	Parse(manifest []byte) (Segment, error)
}

// gapMark finds gap records without decoding all others. The kind stands among
// the first fields of an audit.Event, before anything that a guest can fill in.
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

// fit returns how many bytes of whole frames at the front of buf fit into room bytes, at least one frame if force is
// set.
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
	tempSuffix     = ".tmp"
	erasedSuffix   = ".erased"  // a segment without a record, not yet in its place
	erasingSuffix  = ".erasing" // the segment as it was before, to be overwritten
)

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
