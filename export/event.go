// Package export delivers the record to monitoring systems: it has the formats of SIEMs, and the transports to them.
// The packages below it are the formats (ocsf, ecs, cef) and the sinks (file, syslog, hec, elastic, otlp, natsio, s3).
//
//	store --Feed--> Exporter --Event--> Format --Item--> Sink
//	                   |                                  | ok: the cursor advances
//	                   |                                  | later: retried, in order, without a limit
//	                   +--- permanently refused --------+--> dead letters
package export

import (
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Event is one record to be exported, with the context to understand it alone.
type Event struct {
	audit.Record
	Tenant string
	Host   string // name of the key of the host that recorded it
	Body   []byte // the record's exact bytes; empty if it was erased
	Erased bool   // Record then has only run, seq and time
	// Mark is why the record is not as a host signed it; nil if it is, or if the Source does not check.
	Mark *store.Mark
	// Start is the run's start, nil if its record is missing.
	Start *audit.Lifecycle
	// Exec is the latest exec of the process that caused the record, and Parent that of the
	// process which started it; nil if none was recorded. Both are claims of the guest.
	Exec, Parent *audit.Exec
}

// ID returns the event's id. It is unique, and the same in every export of the record.
func (e Event) ID() string { return e.Run + ":" + strconv.FormatUint(e.Seq, 10) }

// Wrong reports whether the record is known not to be what a host signed.
func (e Event) Wrong() bool { return e.Mark != nil && e.Mark.Wrong() }

// Format appends an event in a SIEM's format to dst: one JSON object or one line, without a newline at its end. It
// supports every kind of record; after an error the event cannot be formatted, and becomes a dead letter.
type Format interface {
	Name() string // as on the command line: ocsf, ecs, cef, native, json
	Append(dst []byte, e Event) ([]byte, error)
}

// Item is an event in the form that a sink sends.
type Item struct {
	ID       string // of the event: Event.ID
	Time     time.Time
	Severity Severity
	Kind     audit.Kind // empty if the record was erased
	Tenant   string
	Host     string
	Run      string
	Seq      uint64
	Data     []byte // as Format wrote it
}

// Severity is the severity of an event.
type Severity = audit.Severity

// The severities that records have.
const (
	Alert   = audit.SeverityAlert
	Error   = audit.SeverityError
	Warning = audit.SeverityWarning
	Notice  = audit.SeverityNotice
	Info    = audit.SeverityInfo
)
