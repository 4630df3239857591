package export

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/custody-project/custody/store"
)

// JSON is the format of the record itself: its exact bytes, as they were hashed.
type JSON struct{}

// Name implements Format.
func (JSON) Name() string { return "json" }

// Append implements Format. An erased record is an object with "erased", and one with a mark is an object
// with its mark and the record, as custody timeline writes it.
func (JSON) Append(dst []byte, e Event) ([]byte, error) {
	if e.Mark != nil && !e.Erased {
		line, err := store.MarkedLine(store.Row{Head: store.Head{Run: e.Run, Seq: e.Seq}, Body: e.Body}, *e.Mark)
		return append(dst, line...), err
	}
	if e.Erased {
		dst = fmt.Appendf(dst, `{"v":1,"run":%q,"seq":%d,"time":%q,"erased":true`, e.Run, e.Seq, e.Time.Format(time.RFC3339Nano))
		if e.Mark != nil {
			mark, err := json.Marshal(e.Mark)
			if err != nil {
				return dst, err
			}
			dst = append(append(dst, `,"verification":`...), mark...)
		}
		return append(dst, '}'), nil
	}
	return append(dst, e.Body...), nil
}
