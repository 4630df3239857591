package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/custody-project/custody/host"
)

// WriteRecords writes the records in the run's log to w, one per line.
func WriteRecords(w io.Writer, logs host.RunLogs, id string) error {
	out := bufio.NewWriter(w)
	for frame, err := range logs.Frames(id) {
		if err != nil {
			return fmt.Errorf("print the records: %w", err)
		}
		out.Write(frame.Body)
		out.WriteByte('\n')
	}
	return out.Flush()
}

// pruneTime bounds retention at the end of a run.
const pruneTime = time.Minute

// Prune applies the host's retention settings at the end of a run, also if ctx is done.
func Prune(ctx context.Context, h *host.Host) error {
	brief, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), pruneTime, errors.New("the time limit for it at a run's end was reached; `custody prune` continues"))
	defer cancel()
	if _, err := h.Retention().Prune(brief, false); err != nil {
		return fmt.Errorf("retention did not finish: %w", err)
	}
	return nil
}
