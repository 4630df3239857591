package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/custody-project/custody/store"
)

// WriteJSON writes the state as a JSON object that also has the records of rows, in the form of NDJSON.
func (m Marked) WriteJSON(w io.Writer, rows Rows, opt Options) error {
	var lines bytes.Buffer
	if err := NDJSON(&lines, rows, opt); err != nil {
		return err
	}
	second := []json.RawMessage{}
	for line := range bytes.Lines(lines.Bytes()) {
		second = append(second, line)
	}
	return json.NewEncoder(w).Encode(struct {
		Marked
		Records []json.RawMessage `json:"records"`
	}{m, second})
}

// OutsideOf warns of an instant after the end of a run, or in the future; "" if it is neither.
func OutsideOf(at time.Time, run store.Run, now time.Time, zone *time.Location) string {
	switch {
	case run.End != nil && at.Truncate(time.Millisecond).After(*run.End):
		return fmt.Sprintf("warning: the run ended before that, at %s: this is its state at the end", run.End.In(zone).Format("2006-01-02T15:04:05.000Z07:00"))
	case run.End == nil && at.After(now):
		return "warning: that is in the future: this is the run's state now"
	}
	return ""
}
