package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/custody-project/custody/audit/proof/statement"

	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/internal/console"
	"github.com/custody-project/custody/replay/report"
)

// verifyReport checks what custody report -o wrote: that the host made these files of these runs, and each run's bundle.
func (a *app) verifyReport(dir string, t proof.Trust) judged {
	v, err := report.Verify(a.ctx, dir, t)
	for _, f := range v.Statement.Files {
		fmt.Fprintf(a.stdout, "report    %s, %d bytes, by %s on %s\n", console.Clean(f.Name), f.Bytes, console.Clean(v.Statement.By), v.Statement.Time.Format(time.DateTime))
	}
	j := judged{of: ofReport, found: err}
	for _, r := range v.Runs {
		fmt.Fprintf(a.stdout, "run       %s, %d records, head %s\n", console.Clean(r.Run), r.Records, r.Head)
		j.runs = append(j.runs, statement.Subject{Run: r.Run, Head: r.Head})
	}
	if unreadable := new(report.UnreadableError); errors.As(err, &unreadable) {
		j.code = a.cannotBeJudged(err)
		return j
	}
	j.code = a.verdict(err, "verified: the report is the host's, and so are the records of the runs above")
	return j
}
