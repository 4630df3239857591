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
	outputPiece = 32 << 10               // maximum number of bytes in an output event
	leastRead   = 32 << 10               // size of the buffer into which output is read, which grows while reads fill it
	mostRead    = 256 << 10              // up to this size
	outputDelay = 100 * time.Millisecond // how long output waits at most before it is recorded
	quietTime   = 250 * time.Millisecond // how long a value at the end of the output waits for more output before it counts as printed
)

// pump reads one output stream of a command, redacts it, shows it on the terminal and
// records it.
type pump struct {
	ctx      context.Context
	recorder Recorder
	quota    *quota
	step     string
	stream   string // stdout, stderr or tty
	to       io.Writer
	unread   chan<- struct{} // receives an element when writing to to fails with EPIPE; its capacity is 1
	live     bool            // the output is shown without delay
	// killed waits for the command's end and reports whether it was killed: then its output may
	// end in the middle of a value.
	killed func() bool

	mu      sync.Mutex // guards pending, offset, seq, waits, timer and err
	pending []byte     // redacted output that has not been recorded
	offset  int64      // of pending in the redacted stream
	seq     uint64     // of the last record of the stream, or of the step's start
	waits   bool       // timer runs for pending
	timer   *time.Timer
	err     error

	looking sync.Mutex       // guards the fields below; redact only until the stream has ended
	printed *secrets.Printed // searches the output for values before they are masked; nil: there are no secrets
	redact  *redact.Stream   // redacts what is recorded, and shown while screen is nil
	screen  *redact.Stream   // with live: redacts what is shown from a pause on, which shows output that redact holds back, until both have released the same
	quiet   *time.Timer      // fires quietTime after the last output
}

// run copies the stream until it ends. The redactor holds back output that could be the beginning of a value. run
// releases it when the command has ended, except if the stream may have been cut off.
func (p *pump) run(from io.Reader) error {
	p.timer = time.AfterFunc(time.Hour, p.flushLate)
	p.quiet = time.AfterFunc(time.Hour, p.pause)
	defer p.timer.Stop()
	defer p.quiet.Stop()
	buf := make([]byte, leastRead)
	whole := true // whether the output so far ends with a newline
	for {
		n, err := from.Read(buf)
		if n > 0 {
			whole = buf[n-1] == '\n'
		}
		p.put(p.mask(buf[:n], err != nil), false)
		if err == nil {
			if n == len(buf) && n < mostRead {
				buf = make([]byte, 2*n)
			}
			continue
		}
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

// mask searches new output for values, and returns the redacted output that can be released. It shows it immediately if live is set.
func (p *pump) mask(b []byte, last bool) []byte {
	p.looking.Lock()
	defer p.looking.Unlock()
	seq := p.lastSeq()
	if p.printed != nil {
		p.printed.Write(b, seq)
		if last {
			p.printed.End(seq)
		}
	}
	out := p.redact.Write(b)
	if p.live {
		p.display(b, out)
		if last {
			p.part()
			p.show(p.screen.FlushCut())
		}
	}
	p.quiet.Reset(quietTime)
	return out
}

// display shows new output b, of which the redactor of the record has released out. The caller holds looking.
func (p *pump) display(b, out []byte) {
	if p.screen == nil {
		p.show(out)
		return
	}
	p.show(p.screen.Write(b))
	if p.screen.Level(p.redact) {
		p.screen = nil
	}
}

// part gives the terminal a redactor of its own, in the state of that of the record. The caller holds looking.
func (p *pump) part() {
	if p.screen == nil {
		p.screen = p.redact.Fork()
	}
}

// pause is called quietTime after the last output. If live is set, it shows the output that was held
// back, except a value, or the beginning of one from its fourth symbol on.
func (p *pump) pause() {
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.printed != nil {
		p.printed.Pause(p.lastSeq())
	}
	if p.live && (p.screen != nil || p.redact.Holds()) {
		p.part()
		p.show(p.screen.Pause())
	}
}

func (p *pump) lastSeq() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seq
}

// put adds redacted output to pending, records full pieces, and shows b unless live is set.
func (p *pump) put(b []byte, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) > 0 {
		p.pending = append(p.pending, b...)
	}
	for len(p.pending) >= outputPiece || (last && len(p.pending) > 0) {
		p.recordPiece(min(len(p.pending), outputPiece), last)
	}
	if len(p.pending) > 0 && !p.waits {
		p.waits = true
		p.timer.Reset(outputDelay)
	}
	if !p.live {
		p.show(b)
	}
}

// show writes to the terminal. If that fails, the output is still recorded.
// The caller holds looking if live is set, otherwise mu.
func (p *pump) show(b []byte) {
	if len(b) == 0 || p.to == nil {
		return
	}
	if _, err := p.to.Write(b); err != nil {
		p.to = nil
		if errors.Is(err, syscall.EPIPE) {
			select {
			case p.unread <- struct{}{}:
			default: // reported already
			}
		}
	}
}

func (p *pump) flushLate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = false
	if len(p.pending) > 0 {
		p.recordPiece(len(p.pending), false)
	}
}

// recordPiece records the first n bytes of pending, without an incomplete
// character at their end unless last is set. The caller holds mu.
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
	} else {
		p.quota.full.Do(func() { p.err = errors.Join(p.err, p.quota.declare(p.ctx, p.recorder)) })
	}
	p.offset += int64(n)
	p.pending = append(p.pending[:0], p.pending[n:]...)
}

// wholeRunes returns the length of b without an incomplete character at its end.
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

// quota bounds the output that a run records, so that a command that writes endlessly does not fill the
// host's disk. Output beyond the quota is counted. A gap is recorded when
// the first is lost, and one for the rest at the end.
type quota struct {
	full sync.Once // the first gap

	mu       sync.Mutex // guards the fields below
	left     int64
	lost     int64
	declared int64 // of lost
	total    int64
}

// take counts n bytes and reports whether they are within the quota.
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

// declare records a gap if output was lost that no gap has.
func (q *quota) declare(ctx context.Context, r Recorder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	lost := q.lost - q.declared
	if lost == 0 {
		return nil
	}
	q.declared = q.lost
	_, err := r.Post(ctx, audit.Event{
		Time: time.Now().UTC(), Observer: audit.Host, Kind: audit.KindGap,
		Gap: &audit.Gap{Stage: audit.StageOutput, What: "output", Bytes: lost, Cause: fmt.Sprintf("record.output allows %d bytes", q.total-q.lost+q.left)},
	})
	return err
}
