// Package export delivers the record to those who monitor it: it has the formats of SIEMs, and the transports to them.
// The packages below it are the formats (ocsf, ecs, cef) and the sinks (file, syslog, hec, elastic, otlp, natsio, s3).
//
//	store --Feed--> Exporter --Event--> Format --Item--> Sink
//	                   |                                  | ok: cursor goes on
//	                   |                                  | later: retried, in order, for as long as it takes
//	                   +--- what no sink can take --------+--> dead letters
package export

import (
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
)

// Event is one record on its way out, with what it takes to understand it alone.
type Event struct {
	audit.Record
	Tenant string
	Host   string // name of the key of the host that recorded it
	Body   []byte // the record's exact bytes; empty when it was erased
	Erased bool   // of Record there are then only run, seq and time
	// Mark is why the record is not as a host signed it; nil if it is, or if the Source does not know.
	Mark *store.Mark
	// Start is the run's start, nil if the record of it is missing.
	Start *audit.Lifecycle
	// Exec is the latest exec of the process that the record is about, and Parent that of the
	// process which started it; nil if none was seen. Both are claims of the guest.
	Exec, Parent *audit.Exec
}

// ID is the same whenever the record is exported, and that of no other.
func (e Event) ID() string { return e.Run + ":" + strconv.FormatUint(e.Seq, 10) }

// Wrong reports whether the record is known not to be what a host signed.
func (e Event) Wrong() bool { return e.Mark != nil && e.Mark.Wrong() }

// Format appends an event in a SIEM's format to dst: one JSON object or one line, without a newline at its end. Every
// kind of record has a form; an error means that this event cannot be formatted, and goes to the dead letters.
type Format interface {
	Name() string // as on the command line: ocsf, ecs, cef, native, json
	Append(dst []byte, e Event) ([]byte, error)
}

// Item is an event in the form in which a sink takes it.
type Item struct {
	ID       string // of the event: Event.ID
	Time     time.Time
	Severity Severity
	Kind     audit.Kind // empty when the record was erased
	Tenant   string
	Host     string
	Run      string
	Seq      uint64
	Data     []byte // as Format wrote it
}

// Severity is how much a reader should care.
type Severity = audit.Severity

// The severities that records have.
const (
	Alert   = audit.SeverityAlert
	Error   = audit.SeverityError
	Warning = audit.SeverityWarning
	Notice  = audit.SeverityNotice
	Info    = audit.SeverityInfo
)
