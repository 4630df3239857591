package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Summary writes the status of each control, and what speaks against controls.
func (r *Report) Summary(w io.Writer) error {
	fmt.Fprintf(w, "Evidence toward %s, from %s.\n%s\n\n", r.Framework.Title, r.Scope.Text, r.Notice)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range r.Controls {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.ID, strings.ToUpper(string(c.Status)[:1])+string(c.Status)[1:], c.Title)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, o := range r.Against {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "against %s: %s\n", strings.Join(o.Controls, ", "), o.Text); err != nil {
			return err
		}
	}
	return nil
}
