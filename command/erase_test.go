package command

import (
	"testing"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"
)

// TestEraseRequests: root signs what the service states only if it is what root requested, and now.
func TestEraseRequests(t *testing.T) {
	now := time.Now()
	const run = "r-01kb0cwdfsfsx934m9dj074emq"
	for name, tt := range map[string]struct {
		name   string
		change func(*statement.Erasure)
		want   bool
	}{
		"the same":               {run, func(*statement.Erasure) {}, true},
		"the beginning of an ID": {run[:10], func(*statement.Erasure) {}, true},
		"last":                   {"last", func(*statement.Erasure) {}, true},
		"another run":            {run, func(e *statement.Erasure) { e.Run = "r-01kb0cwdfsfsx934m9dj074emr" }, false},
		"another record":         {run, func(e *statement.Erasure) { e.Seq++ }, false},
		"another reason":         {run, func(e *statement.Erasure) { e.Reason = "none" }, false},
		"another person":         {run, func(e *statement.Erasure) { e.By = "mallory" }, false},
		"earlier":                {run, func(e *statement.Erasure) { e.Time = now.Add(-2 * maxErasure) }, false},
		"later":                  {run, func(e *statement.Erasure) { e.Time = now.Add(2 * maxErasure) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := Erase{Name: tt.name, Seq: 7, Reason: "request 4711", By: "dpo"}
			stated := statement.Erasure{Run: run, Seq: 7, Reason: c.Reason, By: c.By, Time: now}
			if tt.change(&stated); c.requests(stated, now) != tt.want {
				t.Errorf("%+v: want %v", stated, tt.want)
			}
		})
	}
}
