// Package native writes events unchanged, in an envelope: the record's exact bytes, and the host that recorded it, for
// receivers of events of many hosts and tenants. The run's bundle proves the record's bytes.
//
//	{"id":"r-...:17","tenant":"acme","host":"host-1+0a1b2c3d","severity":6,"record":{...}}
//
// An erased record has "erased":true, and of the record only run, seq and time. One that is not what a host
// signed, or for which that is unknown, has "verification" with its state and the reason.
package native

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/export/internal/wire"
)

type format struct{}

// New returns the format. It is safe for concurrent use.
func New() export.Format { return format{} }

// Name implements export.Format.
func (format) Name() string { return "native" }

// Append implements export.Format. A record that is not JSON on one line is encoded in base64, so that
// its bytes are exact.
func (format) Append(dst []byte, e export.Event) ([]byte, error) {
	w := wire.New(dst)
	o := w.Root()
	o.Str("id", e.ID())
	o.StrIf("tenant", e.Tenant)
	o.StrIf("host", e.Host)
	o.Int("severity", int64(export.SeverityOf(e)))
	o.Mark(e.Mark)
	switch {
	case e.Erased || len(e.Body) == 0:
		o.BoolIf("erased", e.Erased)
		r := o.Obj("record")
		r.Str("run", e.Run)
		r.Uint("seq", e.Seq)
		r.Time("time", e.Time)
		r.End()
	case object(e.Body):
		o.JSON("record", e.Body)
	default:
		o.Base64("record_base64", e.Body)
	}
	return w.Finish(), nil
}

// object reports whether b is a JSON object on one line, without surrounding space.
func object(b []byte) bool {
	return b[0] == '{' && b[len(b)-1] == '}' && !bytes.ContainsAny(b, "\r\n") && utf8.Valid(b) && json.Valid(b)
}
