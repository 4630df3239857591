package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redact"
	"github.com/custody-project/custody/secrets"
)

const (
	outputPiece = 32 << 10               // bytes in one output event at the most
	outputDelay = 100 * time.Millisecond // how long output may wait for more of it before it is recorded
	quietTime   = 250 * time.Millisecond // how long a value in it may wait for more of it before it counts as shown
)

// pump moves one stream of a command through the redactor to the terminal and
// into the record.
type pump struct {
	ctx      context.Context
	recorder Recorder
	quota    *quota
	step     string
	stream   string // stdout, stderr or tty
	to       io.Writer
	unread   chan<- struct{} // receives when the reader of to has gone; has room for one
	redact   *redact.Stream
	// killed waits for the command's end and reports whether it was killed: what it had written may
	// end within a value.
	killed func() bool

	mu      sync.Mutex // guards what follows
	pending []byte     // redacted, shown, not yet recorded
	offset  int64      // of pending in the redacted stream
	seq     uint64     // of the last record of the stream, or of the step's start
	timer   *time.Timer
	err     error

	looking sync.Mutex       // guards what follows
	printed *secrets.Printed // finds values before they are masked; nil: there are none
	screen  *redact.Stream   // masks what is shown, where that is to come without waiting; nil: what is recorded is shown
	quiet   *time.Timer      // ends a moment after the last that was printed
}

// run ends with the stream, and where something is held back with the command. What was held back
// is released only then, and without what may begin a value if the stream may have been cut off.
func (p *pump) run(from io.Reader) error {
	p.timer = time.AfterFunc(time.Hour, p.flushLate)
	p.quiet = time.AfterFunc(time.Hour, p.pause)
	defer p.timer.Stop()
	defer p.quiet.Stop()
	buf := make([]byte, outputPiece)
	whole := true // what was read so far ends a line
	for {
		n, err := from.Read(buf)
		if n > 0 {
			whole = buf[n-1] == '\n'
		}
		p.look(buf[:n], err != nil)
		out := p.redact.Write(buf[:n])
		if err == nil {
			p.put(out, false)
			continue
		}
		p.put(out, false)
		rest := p.redact.FlushCut
		if errors.Is(err, io.EOF) {
			err = nil
			if whole && !p.killed() {
				rest = p.redact.Flush
			}
		}
		p.put(rest(), true)
		p.mu.Lock()
		defer p.mu.Unlock()
		return errors.Join(err, p.err)
	}
}

// look has what is printed searched for values, before it waits for what
// follows, and shows it where that shall not wait either.
func (p *pump) look(b []byte, last bool) {
	p.looking.Lock()
	defer p.looking.Unlock()
	seq := p.lastSeq()
	if p.printed != nil {
		p.printed.Write(b, seq)
		if last {
			p.printed.End(seq)
		}
	}
	if p.screen != nil {
		p.show(p.screen.Write(b))
		if last {
			p.show(p.screen.FlushCut())
		}
	}
	p.quiet.Reset(quietTime)
}

// pause is called when nothing was printed for a moment. A person sees what has
// come, but for what is a value or, from its fourth symbol on, could become one.
func (p *pump) pause() {
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.printed != nil {
		p.printed.Pause(p.lastSeq())
	}
	if p.screen != nil {
		p.show(p.screen.Pause())
	}
}

func (p *pump) lastSeq() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// put records what is ripe, and shows b unless it has been shown.
func (p *pump) put(b []byte, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) > 0 {
		p.pending = append(p.pending, b...)
	}
	for len(p.pending) >= outputPiece || (last && len(p.pending) > 0) {
		p.recordPiece(min(len(p.pending), outputPiece), last)
	}
	if len(p.pending) > 0 {
		p.timer.Reset(outputDelay)
	}
	if p.screen == nil {
		p.show(b)
	}
}

// show writes to the terminal. One that is gone does not end the command: the
// record goes on. The caller holds mu or looking, always the same.
func (p *pump) show(b []byte) {
	if len(b) == 0 || p.to == nil {
		return
	}
	if _, err := p.to.Write(b); err != nil {
		p.to = nil
		if errors.Is(err, syscall.EPIPE) {
			select {
			case p.unread <- struct{}{}:
			default: // it is known already
			}
		}
	}
}

func (p *pump) flushLate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) > 0 {
		p.recordPiece(len(p.pending), false)
	}
}

// recordPiece records the first n bytes that wait, less the beginning of a
// character that is not whole yet. The caller holds mu.
func (p *pump) recordPiece(n int, last bool) {
	if cut := wholeRunes(p.pending[:n]); cut > 0 && !last {
		n = cut
	}
	text := p.pending[:n]
	if p.quota.take(len(text)) {
		seq, err := p.recorder.Post(p.ctx, audit.Event{
			Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindOutput, Step: p.step,
			Output: &audit.Output{Stream: p.stream, Offset: p.offset, Text: audit.Text(text)},
		})
		p.seq, p.err = seq, errors.Join(p.err, err)
	}
	p.offset += int64(n)
	p.pending = append(p.pending[:0], p.pending[n:]...)
}

// wholeRunes returns the length of b without a character at its end that is cut off.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			return len(b)
		}
	}
	return len(b)
}

// quota bounds the output that a run records. What goes beyond is counted and
// declared as a gap: a command that writes without end must not fill the
// host's disk.
type quota struct {
	mu    sync.Mutex // guards what follows
	left  int64
	lost  int64
	total int64
}

// take reports whether n more bytes are to be recorded.
func (q *quota) take(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total += int64(n)
	if q.lost > 0 || int64(n) > q.left {
		q.lost += int64(n)
		return false
	}
	q.left -= int64(n)
	return true
}

// declare writes down what was not recorded.
func (q *quota) declare(ctx context.Context, r Recorder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lost == 0 {
		return nil
	}
	_, err := r.Post(ctx, audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap,
		Gap: &audit.Gap{Stage: audit.StageOutput, What: "output", Bytes: q.lost, Cause: fmt.Sprintf("record.output allows %d bytes", q.total-q.lost+q.left)},
	})
	return err
}
