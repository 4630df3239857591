package qemu

import (
	"os"
	"strings"
	"sync"
)

const tailBytes = 2048

// tail keeps the last tailBytes bytes that a process writes to its standard error.
type tail struct {
	r    *os.File
	done chan struct{}
	mu   sync.Mutex // guards last
	last []byte
}

// newTail returns the tail and the pipe's writing end, which is the process's standard error.
func newTail() (*tail, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	t := &tail{r: r, done: make(chan struct{})}
	go t.read()
	return t, w, nil
}

func (t *tail) read() {
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

// quote returns the kept output as a suffix for an error, or "" if there is none.
func (t *tail) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(string(t.last))
	if s == "" {
		return ""
	}
	return " (qemu's output: " + s + ")"
}

func (t *tail) close() {
	t.r.Close()
	<-t.done
}
