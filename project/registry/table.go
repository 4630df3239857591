package registry

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteTable writes versions as a table.
func WriteTable(out io.Writer, list []Version) error {
	const layout = "2006-01-02 15:04:05Z"
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROJECT\tVERSION\tAUTHOR\tTIME\tDIGEST\tWITHDRAWN")
	for _, v := range list {
		withdrawn := "-"
		if by := v.Withdrawn; by != nil {
			withdrawn = fmt.Sprintf("%s by %s", by.Time.UTC().Format(layout), by.who())
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", v.Project, v.Number, v.who(), v.Time.UTC().Format(layout), v.Digest, withdrawn)
	}
	return w.Flush()
}

func (c Change) who() string { return fmt.Sprintf("%s (uid %d)", c.Author, c.UID) }
