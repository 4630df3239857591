package replay

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/custody-project/custody/audit"
)

// NDJSON writes the exact bytes of the records of the given kinds, all when
// there are none, one a line. An erased record is an object with its leaf hash, and has no kind.
func NDJSON(w io.Writer, rows Rows, kinds ...audit.Kind) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for row, err := range rows {
		if err != nil {
			return err
		}
		if len(kinds) > 0 && !slices.Contains(kinds, row.Kind) {
			continue
		}
		if row.Erased != nil {
			fmt.Fprintf(out, `{"v":1,"run":%q,"seq":%d,"erased":"%x"}`, row.Run, row.Seq, *row.Erased)
		} else {
			out.Write(row.Body)
		}
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
	}
	return out.Flush()
}
