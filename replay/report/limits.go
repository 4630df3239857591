package report

import (
	"fmt"
	"slices"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// scope describes what was looked at.
func (b *builder) scope() Scope {
	s := Scope{Tenant: visible(b.in.Tenant)}
	for _, src := range b.sources {
		if src.class == store.Accesses {
			s.Access++
			continue
		}
		s.Runs++
		s.Records += src.Records
	}
	if from := b.in.From.UTC(); !b.in.From.IsZero() {
		s.From = &from
	}
	if to := b.in.To.UTC(); !b.in.To.IsZero() {
		s.To = &to
	}
	s.Text = count(s.Runs, "run") + " with " + count(s.Records, "record") + ", " + s.chosen()
	if s.Access > 0 {
		s.Text += ", and " + count(s.Access, "log") + " of accesses"
	} else {
		s.Text += "; no access log"
	}
	if s.Tenant != "" {
		s.Text += "; tenant " + s.Tenant
	}
	return s
}

// chosen describes how the runs were.
func (s Scope) chosen() string {
	switch {
	case s.From != nil && s.To != nil:
		return "which began from " + instant(*s.From) + " to before " + instant(*s.To)
	case s.From != nil:
		return "which began at " + instant(*s.From) + " or later"
	case s.To != nil:
		return "which began before " + instant(*s.To)
	}
	return "chosen by name"
}

// limits describes what the evidence as a whole cannot show: first what these runs give cause to
// say, then what is so of every report, then what is so of the framework.
func (b *builder) limits() []string {
	var list []string
	say := func(n int, format string, args ...any) {
		if n > 0 {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	t := b.totals()
	say(t.unproven, "Not everything is verified: %s. No claim that rests on the runs concerned is counted as evidence.", count(t.unproven, "source"))
	say(int(t.unsigned), "The store has records that no host signed: %s. They are left out, and nothing of the runs that have them is counted as evidence.", number(t.unsigned))
	say(t.tcg, "The isolation tier of %s is qemu-tcg, software emulation, of which QEMU's project gives no security promise: what happened behind it may have reached further than the record says.", count(t.tcg, "run"))
	say(t.gvisor, "The isolation tier of %s is gvisor, a kernel in user space without hardware virtualization. It observes less than a VM does: gap records of the stage driver state what.", count(t.gvisor, "run"))
	say(int(t.guest), "%s of %s are claims of a sensor inside the guest. Once a guest's kernel is taken over it can claim what it likes, and nothing marks the moment.", number(t.guest), count(t.records, "record"))
	say(t.broken, "Not ended in order, as Custody or the VM died, or could not carry it out: %s.", count(t.broken, "run"))
	say(t.live, "%s had not ended. Records younger than what was sealed are left out: %s.", count(t.live, "source"), number(t.leftOut))
	say(int(t.tail), "Younger than the host's last checkpoint: %s. Nothing but file modes protects those.", count(t.tail, "record"))
	say(t.alone, "Of %s no witness that is trusted here has cosigned the checkpoint: who has the host's signing key could have signed another history.", count(t.alone, "source"))
	say(int(t.gaps), "The runs declare losses in %s. What was lost is counted, not known.", count(t.gaps, "gap record"))
	say(int(t.erased), "What %s said is erased, and is no part of any claim.", count(t.erased, "record"))
	if !slices.ContainsFunc(b.sources, func(s *source) bool { return s.class == store.Accesses }) {
		list = append(list, "No access log was given, so the report has no statement about accesses to the records.")
	} else {
		list = append(list, "The access log has what was asked through the API. Reads of the files on the host, and queries to the store itself, are not in it.")
	}
	list = append(list, always[:]...)
	return append(list, b.m.Limits...)
}

// always is what no report can show.
var always = [...]string{
	"Only the listed runs were examined. This report does not state whether there were others; the host's log names every run, and custody fsck compares it with what is there.",
	"Only what went through Custody is in the record. What people and agents did elsewhere, with the same accounts or data, is not.",
	"Verification shows that these records are the ones that were signed, in this order. It does not show that they are all that happened, nor that the host was honest when it signed.",
	"Times are the host's own clock, unless a time stamp is named.",
	"An allowed host can be used as a channel: what was sent inside a connection that the policy allows is not judged.",
	"Zero of something says that no such record was found. It does not say that a control would have worked.",
}

type totals struct {
	unproven, tcg, gvisor, live, alone, broken  int
	guest, records, leftOut, tail, gaps, erased uint64
	unsigned                                    uint64
}

func (b *builder) totals() (t totals) {
	for _, s := range b.sources {
		if !s.proven {
			t.unproven++
		}
		if !s.ended {
			t.live++
		}
		if s.Log != nil {
			t.tail += s.Log.Tail
			if len(s.Log.Witnesses) == 0 {
				t.alone++
			}
		}
		t.leftOut += s.LeftOut
		t.unsigned += s.Unsigned
		t.erased += s.Erased
		if s.class == store.Accesses {
			continue
		}
		if r := s.run.Run; r.Result == audit.StatusFailed || r.Result == audit.StatusInterrupted {
			t.broken++
		}
		switch s.run.Run.Tier {
		case "qemu-tcg":
			t.tcg++
		case "gvisor":
			t.gvisor++
		}
		t.guest += s.guest
		t.records += s.Records
		t.gaps += s.run.Run.Gaps - min(s.unseen, s.run.Run.Gaps)
	}
	return t
}
