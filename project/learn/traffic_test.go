package learn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/netpolicy"
)

// TestBounds: the questions of a run are bounded, and the notes count the rest.
func TestBounds(t *testing.T) {
	traffic := NewTraffic()
	for i := range maxQuestions + 7 {
		d := &audit.DNS{Name: audit.Text(fmt.Sprintf("n%d.example.org", i)), Type: "A", RCode: "REFUSED", Verdict: audit.Deny, Rule: "default", Reason: string(netpolicy.NoRule)}
		traffic.addDNS(d)
		traffic.addDNS(d)
	}
	if len(traffic.questions) != maxQuestions || !strings.Contains(strings.Join(traffic.notes(), "\n"), "14 records had others") {
		t.Errorf("%d questions, %q", len(traffic.questions), traffic.notes())
	}
}
