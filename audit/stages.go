package audit

import "slices"

// Stage is where something was lost that a gap declares.
type Stage string

// The stages of gaps.
const (
	StageKernelRing Stage = "kernel_ring"
	StageGuestQueue Stage = "guest_queue"
	StageGuest      Stage = "guest"
	StageTrace      Stage = "trace_sink"
	StageDriver     Stage = "driver"
	StageFlowRing   Stage = "flow_ring"
	StageOutput     Stage = "output"
	StageRedact     Stage = "redact"
	StageWAL        Stage = "wal"
	StageTransport  Stage = "transport"
	StageStore      Stage = "store"
)

// StageInfo describes a stage of gaps: one entry in the table of stages.
type StageInfo struct {
	Stage    Stage
	Observer Observer // that declares such gaps
	Text     string   // what happened, in one line
	Meaning  string   // what is missing because of it
}

// stages is the table. It is not changed.
var stages = []StageInfo{
	{StageKernelRing, Guest, "a ring between the guest's kernel and the sensor was full, or a program was preempted by itself",
		"so many `exec`, `exit`, `file` or `flow` events are missing; a flood is the usual reason, and can be meant to hide something"},
	{StageGuestQueue, Guest, "the queue of closed files overflowed, `count` times", "no event is missing; some `write` events have no hash"},
	{StageGuest, Host, "the VM ended, or was ended while it did not answer, before its sensors had reported everything",
		"the last events of the step may be missing; `count` is 0, because they cannot be counted"},
	{StageTrace, Host, "gVisor's trace sink lost messages: the host did not read in time, or a message was too long or not UTF-8", "up to `count` `exec`, `exit` or `flow` events are missing; the usual reasons are a flood, or with `what` `exec` calls of execve for files that do not exist, and both can be meant to hide something"},
	{StageDriver, Host, "the tier of the run cannot observe `what`", "such events are missing for the whole run; `count` is 0, because no one can count them"},
	{StageFlowRing, Host, "the ring between the sandbox's packet filter and Custody was full",
		"so many reports of direct flows' begins and ends, or of denials, were late or lost; the numbers of denials stay exact"},
	{StageOutput, Host, "`record.output` was reached", "the rest of the run's output is not in the record"},
	{StageRedact, Host, "an event could not be encoded, or was longer than 4 MiB", "one event of kind `what` is missing"},
	{StageWAL, Host, "`mode: degrade`, and the disk could not be written for longer than the 4 MiB buffer lasts", "these seqs are missing"},
	{StageTransport, Host, "reserved", "nothing is lost there: segments that do not reach the store stay in the log"},
	{StageStore, Host, "reserved", "as `transport`"},
}

// Stages returns the table of the stages that gaps name.
func Stages() []StageInfo { return slices.Clone(stages) }

// Info returns s's entry in the table; ok is false where this version does not know s.
func (s Stage) Info() (info StageInfo, ok bool) {
	i := slices.IndexFunc(stages, func(info StageInfo) bool { return info.Stage == s })
	if i < 0 {
		return StageInfo{}, false
	}
	return stages[i], true
}
