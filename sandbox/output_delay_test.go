package sandbox

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/custody-project/custody/redact"
)

// TestOutputDelay: output is recorded at the latest outputDelay after it was written, also if more follows all the time.
func TestOutputDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, lines = 60 * time.Millisecond, 50
		var log events
		p := &pump{
			ctx: t.Context(), recorder: &log, quota: &quota{left: 1 << 20}, stream: "stdout", redact: redact.New([]byte("key")).Stream(), killed: func() bool { return false },
		}
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- p.run(r) }()
		want, written := "", map[int]time.Time{} // by the length of the output until then
		for i := range lines {
			line := fmt.Sprintf("this is line %d\n", i)
			written[len(want)] = time.Now()
			want += line
			io.WriteString(w, line)
			time.Sleep(every)
		}
		w.Close()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, ev := range log {
			first, late := got.Len(), time.Duration(0)
			got.WriteString(string(ev.Output.Text))
			if at, ok := written[first]; ok {
				late = ev.Time.Sub(at)
			}
			if late > outputDelay {
				t.Errorf("output at offset %d was recorded after %v", first, late)
			}
		}
		if got.String() != want || len(log) < lines/3 {
			t.Errorf("%d events with %d bytes of %d", len(log), got.Len(), len(want))
		}
	})
}
