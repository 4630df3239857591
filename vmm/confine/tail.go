package confine

import (
	"os"
	"strings"
	"sync"
)

const tailBytes = 2048

// Tail keeps the last tailBytes bytes that a process writes to its standard error.
type Tail struct {
	program string
	r       *os.File
	done    chan struct{}
	mu      sync.Mutex // guards last
	last    []byte
}

// NewTail returns the tail of a program's messages and the pipe's writing end, which is the process's standard error.
func NewTail(program string) (*Tail, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	t := &Tail{program: program, r: r, done: make(chan struct{})}
	go t.read()
	return t, w, nil
}

func (t *Tail) read() {
	defer close(t.done)
	buf := make([]byte, 512)
	for {
		n, err := t.r.Read(buf)
		t.mu.Lock()
		t.last = append(t.last, buf[:n]...)
		t.last = t.last[max(0, len(t.last)-tailBytes):]
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Quote returns the kept output as a suffix for an error, or "" if there is none.
func (t *Tail) Quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.last))
	if s == "" {
		return ""
	}
	return " (" + t.program + "'s output: " + s + ")"
}

// Close ends the reading of messages.
func (t *Tail) Close() {
	t.r.Close()
	<-t.done
}
