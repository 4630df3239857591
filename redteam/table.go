package redteam

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/custody-project/custody/internal/console"
)

// WriteProbes writes a table of probes.
func WriteProbes(w io.Writer, list []Probe) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROBE\tFAMILY\tBYPASS\tWHAT IT TRIES")
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.ID, p.Family, p.Bypass, p.Title)
	}
	return t.Flush()
}

// maxDetail is the number of bytes of an outcome's detail that a table shows.
const maxDetail = 160

// WriteOutcomes writes a table of outcomes, and the number of those that are as they should be.
func WriteOutcomes(w io.Writer, outcomes []Outcome) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROBE\tFAMILY\tBLOCKED\tRECORDED\tWHAT THE RECORD SAYS")
	var probes, held, controls, worked int
	for _, o := range outcomes {
		blocked := yes(o.Blocked)
		if o.Control {
			controls++
			worked += count(o.Holds())
			blocked = map[bool]string{true: "(works)", false: "DOES NOT WORK"}[!o.Blocked]
		} else {
			probes++
			held += count(o.Holds())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", o.ID, o.Family, blocked, yes(o.Recorded), console.Clean(o.Detail[:min(len(o.Detail), maxDetail)]))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %d probes blocked and recorded, %d of %d controls work\n", held, probes, worked, controls)
	return err
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
