package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/proof/merkle"
	"github.com/custody-project/custody/audit/proof/verdict"
	"github.com/custody-project/custody/replay"
	"github.com/custody-project/custody/store"
)

// source is a run on its way into a report.
type source struct {
	Source
	class  store.Class
	run    Run
	ended  bool
	first  uint64 // seq of the first record; of an access log, of its start
	limit  uint64 // seq up to which records count; 0: all of them
	proven bool   // every record that counts is verified
	guest  uint64 // records whose observer is the guest
	unseen uint64 // gaps that declare what the isolation tier cannot observe
	leaves hash.Hash
	cited  map[uint64]bool
	err    error // of a query that read them again
}

func newSource(r Run) *source {
	s := &source{run: r, class: r.Run.Class(), leaves: sha256.New(), cited: map[uint64]bool{}}
	run, v := r.Run, r.Verification
	s.Source = Source{
		Run: run.ID, Class: s.class, Project: visible(run.Project), Host: visible(run.Host), Start: run.Began(), End: run.End,
		Status: string(run.Status), ExitCode: run.ExitCode, Tier: visible(run.Tier), Mode: visible(run.Mode), Verification: v.clean(),
	}
	s.ended = run.End != nil
	if v.Report != nil {
		s.Key = visible(v.Report.KeyName)
		if v.Report.Head != (merkle.Hash{}) {
			s.Head = v.Report.Head.String()
		}
		s.Log = newLog(v.Report.Published)
	}
	s.limit, s.proven = v.reach()
	return s
}

// clean makes the words of a verification safe to show.
func (v Verification) clean() Verification {
	switch v.State {
	case Holds, Fails, Cannot:
	default:
		v.State = Unchecked
	}
	v.Name, v.Text, v.Report = visible(v.Name), visible(v.Text), nil
	return v
}

// reach says up to which seq records count, 0 for all, and whether those are proven. Of a run
// that is going on, or whose end is not under a checkpoint yet, what was sealed is.
func (v Verification) reach() (limit uint64, proven bool) {
	switch {
	case v.State == Holds:
		return 0, true
	case v.State != Cannot || v.Report == nil || v.Report.HoldsTo == 0:
		return 0, false
	case v.Name == verdict.ErrLive.Name() || v.Name == verdict.ErrPending.Name():
		return v.Report.HoldsTo, true
	}
	return 0, false
}

func newLog(p *proof.Published) *Log {
	if p == nil {
		return nil
	}
	l := &Log{Origin: visible(p.Origin), Size: p.Size, Root: p.Root.String(), Covered: p.Covered, Tail: p.Tail,
		Witnesses: []string{}, Authority: visible(p.Authority)}
	for _, w := range p.Witnesses {
		l.Witnesses = append(l.Witnesses, visible(w))
	}
	if !p.Stamp.IsZero() {
		l.Stamp = &p.Stamp
	}
	return l
}

// read gives each record that counts to see.
func (s *source) read(ctx context.Context, see func(*record)) error {
	if s.run.Rows == nil {
		return fmt.Errorf("run %s: no records were given", s.Run)
	}
	for row, err := range s.run.Rows {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("run %s: read records: %w", s.Run, err)
		}
		switch {
		case row.Wrong():
			s.reject(row)
		case !s.counts(row):
			s.LeftOut++
		default:
			see(s.take(row))
		}
	}
	s.LeavesSHA256 = hex.EncodeToString(s.leaves.Sum(nil))
	if r := s.run.Verification.Report; s.proven && r != nil && r.Records != s.Records {
		s.proven = false // what was read is not what was verified
	}
	return nil
}

// reject leaves out a row that no host signed. Where such a row is, nothing of the run is evidence.
func (s *source) reject(row store.Row) {
	s.Unsigned++
	s.proven = false
	if s.Verification.State != Fails {
		s.Verification = Verification{State: Fails, Name: StoreDiffers, At: s.Verification.At,
			Text: visible(fmt.Sprintf("the store has what no host signed, first record %d: %s", row.Seq, row.Mark.Text))}
	}
}

func (s *source) counts(row store.Row) bool { return s.limit == 0 || row.Seq <= s.limit }

// rows are those that count.
func (s *source) rows() replay.Rows {
	return func(yield func(store.Row, error) bool) {
		for row, err := range s.run.Rows {
			if err == nil && !s.counts(row) {
				return
			}
			if row.Wrong() {
				continue
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// take counts a row in, and decodes it.
func (s *source) take(row store.Row) *record {
	leaf := row.Frame().Leaf()
	s.leaves.Write(leaf[:])
	s.Records++
	s.Last = max(s.Last, row.Seq)
	r := s.decode(row)
	if s.first == 0 && (s.class != store.Accesses || r.host(audit.KindRun)) {
		s.first = row.Seq
	}
	if row.Erased != nil {
		s.Erased++
	}
	if r.readable && r.Observer != audit.Host {
		s.guest++
	}
	if r.tierLacks() {
		s.unseen++
	}
	return r
}

func (s *source) decode(row store.Row) *record {
	r := &record{src: s, row: row}
	r.readable = row.Erased == nil && json.Unmarshal(row.Body, &r.Record) == nil && r.payload()
	return r
}

// payload reports whether the record has what its kind promises, so that no query has to check. A newer version's kind promises nothing.
func (r *record) payload() bool { return !r.Kind.Known() || r.Event.Payload() != nil }

const maxJSON = 64 << 10 // bytes of a cited record that a report holds

// cite returns a row as a report shows it.
func (s *source) cite(row store.Row) Record {
	leaf := row.Frame().Leaf()
	r := Record{Ref: refTo(s.Run, row.Seq), Time: row.Time, Leaf: hex.EncodeToString(leaf[:]), Size: len(row.Body)}
	if r.Erased = row.Erased != nil; r.Erased {
		return r
	}
	r.Kind, r.Observer, r.Step = audit.Kind(visible(string(row.Kind))), audit.Observer(visible(string(row.Observer))), visible(row.Step)
	r.Salt = hex.EncodeToString(row.Salt[:])
	r.setJSON(row.Body)
	return r
}

// The names of findings about what the store has.
const (
	StoreDiffers = "store-differs" // it shows something else than the log holds
	Unsigned     = "unsigned"      // nothing that a host signed stands behind the run
)

// Verified is the Verification of what proof.Verify, or the comparison of the store with the
// log behind it, returned: err is its error. An error that is neither leaves the question open.
func Verified(r proof.Report, err error, at time.Time) Verification {
	v := Verification{State: Holds, At: at.UTC(), Report: &r}
	if err == nil {
		return v
	}
	v.State, v.Text = Cannot, err.Error()
	var finding *verdict.Verdict
	var wrong *store.MarkError
	switch {
	case errors.As(err, &finding):
		v.Name, v.Number = finding.Finding.Name(), finding.Status()
		if errors.Is(err, verdict.ErrDoesNotHold) {
			v.State = Fails
		}
	case errors.Is(err, store.ErrUnsigned), errors.As(err, &wrong) && wrong.Mark.State == store.Unsigned:
		v.State, v.Name = Fails, Unsigned
	case storeDiffers(err), wrong != nil:
		v.State, v.Name = Fails, StoreDiffers
	}
	return v
}

func storeDiffers(err error) bool {
	var one replay.Difference
	var all *replay.Differences
	return errors.As(err, &one) || errors.As(err, &all) || errors.Is(err, replay.ErrSummary)
}
