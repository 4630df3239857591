package main

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// output is the program's standard output. It keeps the first error, so that nobody takes an answer for whole that is not.
type output struct {
	file *os.File

	mu  sync.Mutex // guards err
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.file.Write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // who went away wants no more of it
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Fd returns the file's descriptor.
func (o *output) Fd() uintptr { return o.file.Fd() }

// failed returns why something could not be written.
func (o *output) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
