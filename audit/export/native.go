package export

import (
	"fmt"
	"time"
)

// JSON is the format of the record itself: its exact bytes, as they were hashed.
type JSON struct{}

// Name implements Format.
func (JSON) Name() string { return "json" }

// Append implements Format. An erased record is an object that says so.
func (JSON) Append(dst []byte, e Event) ([]byte, error) {
	if e.Erased {
		return fmt.Appendf(dst, `{"v":1,"run":%q,"seq":%d,"time":%q,"erased":true}`, e.Run, e.Seq, e.Time.Format(time.RFC3339Nano)), nil
	}
	return append(dst, e.Body...), nil
}
