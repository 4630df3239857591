package proof

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof/schema"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/audit/wal"
)

// maxWorkers bounds the number of segments that are in memory together.
const maxWorkers = 4

// part is the result for one segment, without its predecessors.
type part struct {
	err         error // why it does not hold; the other fields are then unused
	file        string
	first, last uint64
	count       int
	began       time.Time  // of the first record
	oldest      *time.Time // of all shown records; nil if there is none
	holes       []hole     // between records of this segment
	gaps        []gap
	copies      []copyClaim
	start       *audit.Lifecycle // of the run, if it is in this segment
	losses      wal.Losses
	present     []uint64 // seqs of existing records whose erasure is stated
	erased      []proven
	withheld    []proven
	strange     *verdict.Verdict // a record of a newer version: its declared losses and copies are unknown
}

type gap struct {
	audit.Gap
	excuse bool // declared by the host: a guest cannot declare losses of the log
}

// checkAll returns when all workers have ended.
func checkAll(ctx context.Context, workers []*worker, manifests []signed) ([]part, error) {
	parts := make([]part, len(manifests))
	var due atomic.Int64
	var working sync.WaitGroup
	for _, w := range workers {
		working.Go(func() {
			for ctx.Err() == nil {
				i := int(due.Add(1)) - 1
				if i >= len(manifests) {
					return
				}
				parts[i] = w.check(manifests[i])
			}
		})
	}
	working.Wait()
	return parts, ctx.Err()
}

// worker checks segments, one at a time. It only reads what it shares with
// others.
type worker struct {
	prover   *prover
	erasures erasures
	scanner  *schema.Scanner
}

// check reads a segment and compares it with its manifest.
func (w *worker) check(m signed) part {
	p := part{file: wal.FileName(m.First, wal.SegmentSuffix), losses: wal.Losses{}, began: m.SealedAt}
	data, err := w.prover.segment(p.file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && m.Count > 0:
		p.err = verdict.Broken(verdict.ErrSegmentMissing, m.First, p.file, "its %d records are signed for in segment %d", m.Count, m.Segment)
		return p
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		p.err = verdict.Open(verdict.ErrUnreadable, p.file, "%v", err)
		return p
	}
	frames, err := w.prover.prove(m.Manifest, p.file, data)
	if err == nil {
		err = w.records(&p, frames)
	}
	p.err = err
	return p
}

// records checks the contents of the frames, whose bytes are already proven.
func (w *worker) records(p *part, frames []proven) error {
	for i, f := range frames {
		switch {
		case i == 0:
			p.first = f.seq
		case f.seq <= p.last:
			return verdict.Broken(verdict.ErrContradiction, f.seq, p.file, "the seq before is %d", p.last)
		case f.seq > p.last+1:
			p.holes = append(p.holes, hole{p.last + 1, f.seq - 1, p.file})
		}
		p.last, p.count = f.seq, p.count+1
		if f.withheld {
			p.withheld = append(p.withheld, f)
			continue
		}
		if f.record == nil {
			p.erased = append(p.erased, f)
			continue
		}
		if err := w.record(p, f); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) record(p *part, f proven) error {
	h, err := w.scanner.Scan(f.record)
	var syntax schema.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return verdict.Broken(verdict.ErrUndecodable, f.seq, p.file, "%v", err)
	case err != nil:
		return verdict.Broken(verdict.ErrMalformed, f.seq, p.file, "%v", err)
	case h.Stranger != "":
		p.strange = cmp.Or(p.strange, verdict.Open(verdict.ErrField, p.file, "seq %d has a field %q; a newer custody can judge it", f.seq, h.Stranger))
	case !h.Known:
		p.strange = cmp.Or(p.strange, verdict.Open(verdict.ErrKind, p.file, "seq %d is of kind %.40q; a newer custody can judge it", f.seq, h.Kind))
	}
	if p.count == 1 && h.Timed {
		p.began = h.Time
	}
	if h.Timed && (p.oldest == nil || h.Time.Before(*p.oldest)) {
		at := h.Time
		p.oldest = &at
	}
	if e, ok := w.erasures[f.seq]; ok {
		if e.Leaf != f.leaf || h.Stranger == "" && e.Kind != h.Kind {
			return verdict.Broken(verdict.ErrErasureMismatch, f.seq, e.file, "the record is another")
		}
		p.present = append(p.present, f.seq)
	}
	if h.Stranger != "" {
		return nil
	}
	if err := p.losses.Add(f.record); err != nil {
		return verdict.Broken(verdict.ErrUndecodable, f.seq, p.file, "%v", err)
	}
	if h.Kind != audit.KindGap && h.Kind != audit.KindCopy && h.Kind != audit.KindRun {
		return nil
	}
	var r audit.Record
	err = json.Unmarshal(f.record, &r)
	switch {
	case err == nil && h.Kind == audit.KindGap && r.Gap != nil:
		p.gaps = append(p.gaps, gap{*r.Gap, h.Observer == audit.Host && r.Gap.Stage == audit.StageWAL})
	case err == nil && h.Kind == audit.KindCopy && r.Copy != nil:
		p.copies = append(p.copies, copyClaim{*r.Copy, f.seq, p.file})
	case err == nil && h.Kind == audit.KindRun && r.Lifecycle != nil:
		if r.Lifecycle.Phase == audit.PhaseStart && p.start == nil {
			p.start = r.Lifecycle
		}
	default:
		return verdict.Broken(verdict.ErrUndecodable, f.seq, p.file, "%v", err)
	}
	return nil
}
