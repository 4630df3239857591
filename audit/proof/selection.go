package proof

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/proof/statement"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// Selection selects the records that a bundle shows. Of the others it has only leaf and position. Records
// that verification needs, those of kind run and gap, are always shown.
type Selection struct {
	Shows func(seq uint64) bool
	// Context also shows records that explain the others: steps, policies, operations on the VM and findings.
	Context bool
	What    string // describes the selection to users, such as "seq 40 to 60"
}

// shows reports whether a record is to be shown.
func (s Selection) shows(seq uint64, k audit.Kind) bool {
	switch k {
	case audit.KindRun, audit.KindGap:
		return true
	case audit.KindStep, audit.KindPolicy, audit.KindVM, audit.KindFinding:
		return s.Context || s.Shows(seq)
	}
	return s.Shows(seq)
}

// selected returns a segment that shows only the selection. The segment must match its manifest: otherwise
// it would be unclear which bytes to leave out.
func (b *bundler) selected(name string) ([]byte, error) {
	first, _ := wal.ParseName(name, wal.SegmentSuffix)
	m, signed, err := b.evidence.manifestOver(first)
	if err == nil && signed == nil {
		err = errors.New("no manifest signs for it")
	}
	if err != nil {
		return nil, err
	}
	data, err := b.evidence.read(name, maxSegment)
	if err != nil {
		return nil, err
	}
	w := newProver(b.evidence, m.Run)
	frames, err := w.prove(m, name, data)
	if err != nil {
		return nil, err
	}
	return b.hide(m, data, frames)
}

// hide returns the segment's frames; those that are not selected become withheld ones of the same length.
func (b *bundler) hide(m statement.Manifest, data []byte, frames []proven) (out []byte, err error) {
	scanner := schema.NewScanner(schema.New())
	for _, f := range frames {
		end := frameRecord + int(binary.LittleEndian.Uint32(data[4:]))
		own := data[:end]
		data = data[end:]
		if f.record != nil {
			h, err := scanner.Scan(f.record)
			if err != nil {
				return nil, fmt.Errorf("seq %d: %w", f.seq, err)
			}
			if !b.Select.shows(f.seq, h.Kind) {
				if end-frameBody < erasedRun+len(m.Run) {
					return nil, fmt.Errorf("seq %d: a record of %d bytes is too short to be withheld", f.seq, len(f.record))
				}
				b.withheld.Add(f.seq, f.leaf)
				out = appendBody(out, withheldMagic, goneBody(f.leaf, f.seq, m.Run, end-frameBody))
				continue
			}
		}
		out = append(out, own...)
	}
	return out, nil
}

// addSelection adds the statement. It is made when all segments are written.
func (b *bundler) addSelection() {
	if b.Select == nil {
		return
	}
	b.add(selectionFile, func() ([]byte, error) {
		return statement.Selected{
			Run: b.head.Run, Head: b.head.Head, Records: b.records, Withheld: b.withheld.Count,
			Digest: b.withheld.Digest(), What: b.Select.What, By: b.By, Time: b.Time,
		}.Sign(b.Signer)
	})
}

// selection reads the statement that a bundle withholds records.
func (v *verifier) selection() error {
	if !v.evidence.bundle {
		return nil
	}
	signed, err := fromFiles{v.evidence}.file(selectionFile, statement.MaxNote)
	if signed == nil || err != nil {
		return err
	}
	n, by, known, err := v.ring.openSigned(signed)
	var s statement.Selected
	if err == nil {
		s, err = statement.ParseSelected(n.Text)
	}
	last := v.manifests[len(v.manifests)-1]
	switch {
	case err != nil:
		return verdict.Broken(verdict.ErrSelectionForged, 0, selectionFile, "%v", err)
	case !known || by.name != v.host:
		return verdict.Broken(verdict.ErrSelectionForged, 0, selectionFile, "no key of %s that is trusted here signed it", v.host)
	case s.Run != v.report.Run || s.Head != last.digest:
		return verdict.Broken(verdict.ErrSelectionMismatch, 0, selectionFile, "it is about run %s with head %s", s.Run, s.Head)
	}
	v.report.Selected = &s
	return nil
}
