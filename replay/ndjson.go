package replay

import (
	"bufio"
	"io"
	"slices"

	"github.com/custody-project/custody/audit"
)

// NDJSON writes the exact bytes of the records of the given kinds, all when
// there are none, one a line.
func NDJSON(w io.Writer, rows Rows, kinds ...audit.Kind) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for row, err := range rows {
		if err != nil {
			return err
		}
		if len(kinds) > 0 && !slices.Contains(kinds, row.Kind) {
			continue
		}
		out.Write(row.Body)
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
	}
	return out.Flush()
}
