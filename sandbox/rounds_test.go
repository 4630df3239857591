package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/sandbox"
	"github.com/custody-project/custody/vmm/vmtest"
)

// rounds is how often TestSuspendRounds suspends the sandbox.
const rounds = 20

// crowd prints the lines "child count" from 100 processes.
const crowd = `
import os, time
for child in range(100):
    if os.fork() == 0:
        count = 0
        while True:
            count += 1
            os.write(1, b"%d %d\n" % (child, count))
            time.sleep(0.3)
time.sleep(10000)
`

// counts checks that lines with numbers are without a gap: "count", or "child count" for each child.
type counts struct {
	mu    sync.Mutex // guards the fields below
	bytes int64
	rest  []byte
	last  map[string]int // by child
	err   error
}

// Write implements io.Writer.
func (c *counts) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += int64(len(b))
	c.rest = append(c.rest, b...)
	for c.err == nil {
		line, rest, ok := bytes.Cut(c.rest, []byte("\n"))
		if !ok {
			break
		}
		c.rest = rest
		child, count := "", string(line)
		if before, after, ok := bytes.Cut(line, []byte(" ")); ok {
			child, count = string(before), string(after)
		}
		if n, err := strconv.Atoi(count); err != nil || n != c.last[child]+1 {
			c.err = fmt.Errorf("line %q follows %d", line, c.last[child])
		}
		c.last[child]++
	}
	return len(b), nil
}

// state returns how many bytes and children there are, and the least count of a child.
func (c *counts) state(t *testing.T) (size int64, children, least int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	must(t, c.err)
	least = 1 << 40
	for _, n := range c.last {
		least = min(least, n)
	}
	return c.bytes, len(c.last), least
}

// offsets is a record that checks the offsets of outputs and does not keep the outputs.
type offsets struct {
	record
	mu   sync.Mutex       // guards next
	next map[string]int64 // by step and stream
}

func (o *offsets) Post(ctx context.Context, ev audit.Event) (uint64, error) {
	if ev.Output == nil {
		return o.record.Post(ctx, ev)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := ev.Step + " " + ev.Output.Stream
	if ev.Output.Offset != o.next[key] {
		return 0, fmt.Errorf("%s: output at %d follows %d", key, ev.Output.Offset, o.next[key])
	}
	o.next[key] += int64(len(ev.Output.Text))
	return 1, nil
}

func (o *offsets) Record(ctx context.Context, ev audit.Event) (uint64, error) { return o.Post(ctx, ev) }

// TestSuspendRounds: a sandbox with a flood of output and with 100 processes that count is suspended and continued repeatedly. Nothing of
// their outputs is lost or repeated.
func TestSuspendRounds(t *testing.T) {
	m := vmtest.Describe(t, vmtest.Driver(t), vmtest.Options{})
	r := &offsets{next: map[string]int64{}}
	s := beginWith(t, m, "r-rounds", nil, sandbox.Parts{Recorder: r, Redactor: redact.New([]byte("key")), Notice: func(text string) { t.Log(text) }})
	outputs := []*counts{{last: map[string]int{}}, {last: map[string]int{}}}
	steps := []sandbox.Step{
		{Name: "flood", Argv: []string{"seq", "1000000000"}, Stdout: outputs[0]},
		{Name: "crowd", Argv: []string{"python3", "-c", crowd}, Stdout: outputs[1], Live: true},
	}
	ended := make(chan error, len(steps))
	run := func() {
		for i, st := range steps {
			st.Session, st.Env = true, []string{"PATH=/usr/bin:/bin"}
			st.Offsets[0], _, _ = outputs[i].state(t)
			go func() {
				_, err := s.Step(t.Context(), st)
				ended <- err
			}()
		}
	}
	run()
	await(t, "all processes count", func() bool { _, n, _ := outputs[1].state(t); return n == 100 })
	for round := range rounds {
		before, _, _ := outputs[0].state(t)
		await(t, "the output grows", func() bool { n, _, _ := outputs[0].state(t); return n > before+64<<10 })
		must(t, suspension(s).Suspend(t.Context()))
		for range steps {
			if err := <-ended; !errors.Is(err, sandbox.ErrSuspended) {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		must(t, suspension(s).Continue(t.Context()))
		for i := range steps {
			steps[i].Attach = true
		}
		started := starts(&r.record)
		run()
		await(t, "the steps are attached", func() bool { return starts(&r.record) == started+len(steps) })
		must(t, suspension(s).Thaw(t.Context()))
	}
	_, _, before := outputs[1].state(t)
	await(t, "all processes count still", func() bool { _, n, least := outputs[1].state(t); return n == 100 && least > before+1 })
	size, _, _ := outputs[0].state(t)
	t.Logf("%d rounds, %d bytes of the flood", rounds, size)
}
