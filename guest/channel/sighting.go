package channel

import (
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
)

// Bounds of one event from the guest.
const (
	maxArgs = 32 << 10 // the sensor keeps 32 KiB of an argv, and an empty argument takes one byte
	maxName = 256      // identifiers, protocol names, causes: all text that the workload does not choose
)

// admit checks an event from the guest, and sets its observer to the guest
// and its time to the host's. It returns an error for everything that
// an honest guest never sends.
func admit(e *audit.Event, now time.Time, offset time.Duration, knownStep func(string) bool) error {
	if err := checkPayload(e); err != nil {
		return err
	}
	if e.Step != "" && !knownStep(e.Step) {
		return hostile("event of a step %.40q that never started", e.Step)
	}
	if e.Guest != nil {
		t := e.Guest.Time.UTC()
		if y := t.Year(); y < 1970 || y > 9999 {
			return hostile("event of the year %d", y)
		}
		e.Guest = &audit.GuestTime{Time: t, OffsetNS: int64(offset)}
	}
	e.Observer = audit.Guest
	e.Time = now.UTC()
	return nil
}

func checkPayload(e *audit.Event) error {
	if err := e.OwnPayload(); err != nil || !e.Kind.ObservedBy(audit.Guest) {
		return hostile("event of kind %.40q is not one that a guest may send, or its payload is another's", e.Kind)
	}
	switch e.Kind {
	case audit.KindExec:
		return checkExec(e.Exec)
	case audit.KindExit:
		return checkNames(e.Exit.Proc)
	case audit.KindFile:
		return checkFile(e.File)
	case audit.KindFlow:
		return checkFlow(e.Flow)
	case audit.KindGap:
		if stage, ok := e.Gap.Stage.Info(); !ok || stage.Observer != audit.Guest {
			return hostile("gap of stage %.40q, which is not in the guest", e.Gap.Stage)
		}
		return checkNames(e.Gap.What, e.Gap.Cause)
	}
	return hostile("event of kind %.40q, which has no check", e.Kind)
}

func checkExec(x *audit.Exec) error {
	if len(x.Argv) > maxArgs {
		return hostile("exec with %d arguments", len(x.Argv))
	}
	if x.LLM != "" || x.ToolCall != "" {
		return hostile("exec with what only the host knows")
	}
	if err := checkDigest(x.ArgvSHA256); err != nil {
		return err
	}
	return checkNames(x.Proc, x.Parent)
}

func checkFile(f *audit.File) error {
	switch f.Op {
	case audit.FileCreate, audit.FileWrite, audit.FileRead, audit.FileRename, audit.FileDelete, audit.FileChroot:
	default:
		return hostile("file operation %.40q", f.Op)
	}
	if err := checkDigest(f.SHA256); err != nil {
		return err
	}
	if len(f.Secrets) > 0 {
		return hostile("file with names of secrets, which the host gives")
	}
	if f.Caller != "" || f.Offset != 0 || f.Error != "" {
		return hostile("file with what only an operation through the API has")
	}
	return checkNames(f.Proc, f.Unhashed, f.Device, f.Inode)
}

// checkFlow: a sensor observes attempts; only enforcers, on the host, give verdicts.
func checkFlow(f *audit.Flow) error {
	if f.State != audit.FlowAttempt {
		return hostile("flow in state %.40q", f.State)
	}
	claim := audit.Flow{
		Proc: f.Proc, PID: f.PID, Parent: f.Parent, State: f.State, Proto: f.Proto,
		SrcIP: f.SrcIP, SrcPort: f.SrcPort, DstIP: f.DstIP, DstPort: f.DstPort, Errno: f.Errno,
	}
	if claim != *f {
		return hostile("flow with what only an enforcer knows")
	}
	return checkNames(f.Proc, f.Parent, f.Proto, f.SrcIP, f.DstIP)
}

func checkNames(names ...string) error {
	for _, s := range names {
		if len(s) > maxName {
			return hostile("name of %d bytes", len(s))
		}
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return hostile("name with a control character: %.40q", s)
		}
	}
	return nil
}

func checkDigest(s string) error {
	if s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
		return hostile("%.80q is no SHA-256", s)
	}
	return nil
}
