package judge

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay/report"
)

// longPause is how long nothing was sealed in a run that verify points out.
const longPause = time.Hour

// WriteText writes what the verification established, for people, and returns the sentence with which to conclude if Err is nil.
func (j Judgement) WriteText(w io.Writer) (holds string) {
	switch {
	case j.Record != nil:
		return printRecord(w, j)
	case j.Of == OfReport:
		return printFiles(w, j.Files)
	case j.Report.Run != "":
		printReport(w, j.Report)
	}
	if j.Report.Selected != nil {
		return "verified: the records that are shown, and the place of each other one"
	}
	return "verified: every record from the first to the closing manifest"
}

// printRecord prints what the proof of a record establishes, and returns the sentence for one that verifies.
func printRecord(w io.Writer, j Judgement) (holds string) {
	r := j.Record
	fmt.Fprintf(w, "run       %s\nrecord    seq %d, leaf %s\nkey       %s\n", console.Clean(j.Report.Run), r.Seq, r.Leaf, console.OrDash(j.Report.KeyName))
	printPublished(w, j.Report.Published)
	if e := r.Erased; e != nil {
		fmt.Fprintf(w, "erased    on %s for %s: %s\n", e.Time.Format(time.DateTime), console.Clean(e.By), console.Clean(e.Reason))
	}
	switch r.State {
	case proof.StateOpen:
		return "verified: nothing yet. The record is in a segment that is not sealed: ask again"
	case proof.StateSealed:
		return "verified: this record, under the host's signature and no checkpoint"
	}
	return "verified: this record, and nothing of its neighbours"
}

// printFiles prints the files and the runs of a report, and returns the sentence for one that verifies.
func printFiles(w io.Writer, v report.Checked) (holds string) {
	for _, f := range v.Statement.Files {
		fmt.Fprintf(w, "report    %s, %d bytes, by %s on %s\n", console.Clean(f.Name), f.Bytes, console.Clean(v.Statement.By), v.Statement.Time.Format(time.DateTime))
	}
	for _, r := range v.Runs {
		fmt.Fprintf(w, "run       %s, %d records, head %s\n", console.Clean(r.Run), r.Records, r.Head)
	}
	return "verified: the report is the host's, and so are the records of the runs above"
}

// printReport writes what a check established, for people.
func printReport(w io.Writer, r proof.Report) {
	fmt.Fprintf(w, "run       %s\n", console.Clean(r.Run))
	fmt.Fprintf(w, "records   %d in %d segments, proven up to seq %d\n", r.Records, r.Segments, r.HoldsTo)
	fmt.Fprintf(w, "closing   %s\n", console.OrDash(string(r.Closing)))
	if r.Closing == wal.Interrupted {
		fmt.Fprintf(w, "          its end was sealed at %s\n", r.Sealed.Format(time.RFC3339))
	}
	if r.Closing == wal.Interrupted || r.Pause > longPause {
		fmt.Fprintf(w, "          the longest pause between two seals is %s, after seq %d\n", r.Pause.Round(time.Second), r.Paused)
	}
	fmt.Fprintf(w, "tier      %s\n", console.OrDash(r.Facts.Tier))
	fmt.Fprintf(w, "template  %s\n", console.OrDash(r.Facts.TemplateDigest))
	fmt.Fprintf(w, "policy    %s\n", console.OrDash(r.Facts.PolicyDigest))
	fmt.Fprintf(w, "head      %s\n", r.Head)
	fmt.Fprintf(w, "key       %s\n", console.OrDash(r.KeyName))
	printLineage(w, r)
	printPublished(w, r.Published)
	if len(r.Gaps) == 0 {
		fmt.Fprintln(w, "losses    none declared")
	}
	printSelected(w, r)
	for _, g := range r.Gaps {
		if g.Stage == audit.StageDriver && g.Count == 0 {
			fmt.Fprintf(w, "unseen    %s: %s\n", console.Clean(g.What), console.Clean(g.Cause))
			continue
		}
		fmt.Fprintf(w, "loss      stage %s: %d events, %d bytes: %s\n", console.Clean(string(g.Stage)), g.Count, g.Bytes, console.Clean(g.Cause))
	}
	for _, c := range r.Copies {
		listed := ""
		if !c.Listed {
			listed = ", not all of them shown"
		}
		fmt.Fprintf(w, "copied    %s: %d files%s, %d bytes, root %s\n", console.Clean(c.Direction), c.Count, listed, c.Bytes, console.Clean(c.Root))
	}
	for _, e := range r.Erasures {
		fmt.Fprintf(w, "erased    seq %d (%s) on %s for %s: %s\n", e.Seq, console.Clean(string(e.Kind)), e.Time.Format(time.DateTime), console.Clean(e.By), console.Clean(e.Reason))
	}
	for _, h := range r.Hosts {
		fmt.Fprintf(w, "host      %s, by the fleet's root key on %s\n", console.Clean(h.Host), h.Time.Format(time.DateTime))
	}
	for _, k := range r.Rotations {
		fmt.Fprintf(w, "rotation  %s to %s at %s\n", console.Clean(k.Old), console.Clean(k.New), k.Time.Format(time.DateTime))
	}
	for _, name := range r.Unknown {
		fmt.Fprintf(w, "unknown   field %s: a newer version wrote this record\n", console.Clean(name))
	}
}

// printLineage prints the runs that this one continues, the parent first.
func printLineage(w io.Writer, r proof.Report) {
	if p := r.Parent; p != nil && len(r.Lineage) == 0 {
		fmt.Fprintf(w, "parent    %s of %s at seq %d, manifest %s: not asked\n", console.Clean(p.Op), console.Clean(p.Run), p.Seq, console.Clean(p.Manifest))
	}
	label := "parent  "
	for _, a := range r.Lineage {
		fmt.Fprintf(w, "%s  %s of %s at seq %d, manifest %s: %s\n", label, console.Clean(a.Op), console.Clean(a.Run), a.Seq, console.Clean(a.Manifest), lineageText(a))
		label = "ancestor"
	}
}

// lineageText describes what was established about an ancestor.
func lineageText(a proof.Ancestor) string {
	switch a.State {
	case proof.AncestorVerified:
		if a.Erased > 0 {
			return fmt.Sprintf("verified, %d of %d records erased", a.Erased, a.Records)
		}
		return fmt.Sprintf("verified, %d records", a.Records)
	case proof.AncestorDeleted:
		return fmt.Sprintf("erased: the host deleted the whole record on %s (%s)", a.Deletion.Time.Format(time.DateTime), console.Clean(a.Deletion.Rule))
	case proof.AncestorDoubtful:
		return "cannot be judged"
	case proof.AncestorBeyond:
		return "not verified: it is over 1,000 generations older"
	}
	return "not here: ask for the record with this manifest"
}

// printSelected prints which records a bundle shows, and its attachments.
func printSelected(w io.Writer, r proof.Report) {
	if s := r.Selected; s != nil {
		fmt.Fprintf(w, "shown     %d of %d records (%s); the others are withheld, chosen by %s\n", r.Shown(), r.Records, console.Clean(s.What), console.Clean(s.By))
	}
	if r.Attached == nil {
		return
	}
	for _, f := range r.Attached.Files {
		fmt.Fprintf(w, "attached  %s, %d bytes, by %s on %s\n", console.Clean(f.Name), f.Bytes, console.Clean(r.Attached.By), r.Attached.Time.Format(time.DateTime))
	}
}

// printPublished prints what the host's log proves.
func printPublished(w io.Writer, p *proof.Published) {
	if p == nil {
		fmt.Fprintln(w, "log       not asked")
		return
	}
	fmt.Fprintf(w, "log       %s, checkpoint of %d entries, root %s\n", console.Clean(p.Origin), p.Size, p.Root)
	if p.Covered+p.Tail > 0 { // else it is about one record
		fmt.Fprintf(w, "covered   %d records; %d are younger than the checkpoint\n", p.Covered, p.Tail)
	}
	fmt.Fprintf(w, "witnesses %s\n", console.OrDash(strings.Join(p.Witnesses, ", ")))
	if !p.Witnessed.IsZero() {
		fmt.Fprintf(w, "in log    by %s, at the most %s after it was sealed\n", p.Witnessed.Format(time.RFC3339), max(p.Delay, 0).Round(time.Second))
	}
	if p.Since > 0 {
		fmt.Fprintf(w, "since     the log went on from your checkpoint of %d entries\n", p.Since)
		if p.SinceTime.IsZero() {
			fmt.Fprintln(w, "          no --witness has cosigned that one: a younger record that claims to be older is not detected")
		}
	}
	if !p.Stamp.IsZero() {
		fmt.Fprintf(w, "stamped   %s by %s\n", p.Stamp.Format(time.RFC3339), console.Clean(p.Authority))
	}
}
