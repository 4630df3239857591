package sandbox

import (
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/redact"
)

// broken is a reader that ends with an error.
type broken struct{ io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// TestOutputCutOff: a command that was killed, or whose last line has no newline, may have written the
// beginning of a value. From its fourth symbol on it is neither shown nor recorded.
func TestOutputCutOff(t *testing.T) {
	const value = "hunter2-correct-horse"
	red := redact.New([]byte("key"))
	if err := red.Add("v", []byte(value)); err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{"raw": value, "base64": base64.StdEncoding.EncodeToString([]byte(value))}
	for _, c := range []struct {
		name   string
		end    string // of what was printed
		killed bool
		broken bool
		stays  bool
	}{
		{name: "killed", killed: true},
		{name: "killed after a line", end: "\n", killed: true},
		{name: "killed after a line of a terminal", end: "\r\n", killed: true},
		{name: "no end of line"},
		{name: "broken off", end: "\n", broken: true},
		{name: "ended", end: "\n", stays: true},
	} {
		for form, text := range forms {
			for n := 4; n < 16; n++ {
				var log events
				var shown strings.Builder
				p := &pump{
					ctx: t.Context(), recorder: &log, quota: &quota{left: 1 << 20}, stream: "stdout", to: &shown,
					redact: red.Stream(), killed: func() bool { return c.killed },
				}
				var from io.Reader = strings.NewReader("it is: " + text[:n] + c.end)
				if c.broken {
					from = broken{from}
				}
				if err := p.run(from); (err != nil) != c.broken {
					t.Fatal(err)
				}
				recorded := ""
				for _, ev := range log {
					recorded += string(ev.Output.Text)
				}
				if recorded != shown.String() {
					t.Errorf("recorded %q, shown %q", recorded, shown.String())
				}
				if stays := strings.Contains(recorded, text[:n]); stays != c.stays {
					t.Errorf("%s, %d of %s: %q", c.name, n, form, recorded)
				}
				if !strings.HasPrefix(recorded, "it is: ") {
					t.Errorf("%s, %d of %s: %q lacks what was printed before", c.name, n, form, recorded)
				}
			}
		}
	}
}

// paused pauses before each of its pieces.
type paused struct {
	pump           *pump
	pieces         []string
	parted, joined bool // the terminal has had a redactor of its own, and after that none
}

func (p *paused) Read(b []byte) (n int, err error) {
	p.joined = p.joined || p.parted && p.pump.screen == nil
	p.pump.pause()
	p.parted = p.parted || p.pump.screen != nil
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	n = copy(b, p.pieces[0])
	p.pieces = p.pieces[1:]
	return n, nil
}

// TestLive: output is shown without delay, and what a pause has shown is not shown again. Recorded and shown are the same without values.
func TestLive(t *testing.T) {
	const value = "hunter2-correct-horse"
	red := redact.New([]byte("key"))
	if err := red.Add("v", []byte(value)); err != nil {
		t.Fatal(err)
	}
	marker := string(red.Bytes([]byte(value)))
	var log events
	var shown strings.Builder
	p := &pump{
		ctx: t.Context(), recorder: &log, quota: &quota{left: 1 << 20}, stream: "stdout", to: &shown,
		redact: red.Stream(), live: true, killed: func() bool { return false },
	}
	from := &paused{pump: p, pieces: []string{"one\n", "hu", "n", "t", "er\n", "two\n", value[:9], value[9:] + "\n", "hunt", "er2-correct-horse", " three\nhun"}}
	text := strings.Join(from.pieces, "")
	if err := p.run(from); err != nil {
		t.Fatal(err)
	}
	if !from.parted || !from.joined {
		t.Errorf("the terminal had a redactor of its own: %v, and later none: %v", from.parted, from.joined)
	}
	want := strings.ReplaceAll(text, value, marker)
	recorded := ""
	for _, ev := range log {
		recorded += string(ev.Output.Text)
	}
	if recorded != want || shown.String() != want {
		t.Errorf("recorded %q\nshown    %q\nwant     %q", recorded, shown.String(), want)
	}
}

// TestUnread: the command is signaled if the reader of its output has gone (EPIPE), not if the disk is full.
func TestUnread(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{{syscall.EPIPE, 1}, {syscall.ENOSPC, 0}, {syscall.EIO, 0}} {
		unread := make(chan struct{}, 1)
		p := &pump{to: failing{&os.PathError{Op: "write", Path: "stdout", Err: tt.err}}, unread: unread}
		p.show([]byte("one"))
		p.show([]byte("two"))
		if len(unread) != tt.want || p.to != nil {
			t.Errorf("%v: %d signals, want %d", tt.err, len(unread), tt.want)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
