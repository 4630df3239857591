package replay

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"github.com/custody-project/custody/store"
)

// NDJSON writes the exact bytes of the records of the kinds and the time that opt has, one per line. An erased record is an object with
// its leaf hash, and has no kind. A row that is marked is an object with its mark and the record within; one that is not what was signed is written whatever its kind and time.
func NDJSON(w io.Writer, rows Rows, opt Options) error {
	out := bufio.NewWriterSize(w, 64<<10)
	for row, err := range rows {
		if err != nil {
			return err
		}
		mark := opt.mark(row)
		if shown := len(opt.Kinds) == 0 || slices.Contains(opt.Kinds, row.Kind); !(shown && opt.within(row.Time) || mark.Wrong()) {
			continue
		}
		if !mark.Good() {
			line, err := store.MarkedLine(row, mark)
			if err != nil {
				return err
			}
			out.Write(line)
		} else if row.Erased != nil {
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
