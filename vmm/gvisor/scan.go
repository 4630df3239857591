package gvisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/custody-project/custody/audit"
)

// scanLimit bounds a scan of the file system, with the hashes of what it finds.
const scanLimit = time.Minute

// Changed implements container.
func (s *spawned) Changed(ctx context.Context, hashOver int64, emit func(*audit.File) error) error {
	ctx, done, err := s.scans.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return s.scan(ctx, hashOver, emit)
}

// scan calls emit with what changed since the scan before it. Only one scan runs at a time.
func (s *spawned) scan(ctx context.Context, hashOver int64, emit func(*audit.File) error) error {
	list, incomplete := s.changes.scan(ctx)
	if emit == nil {
		return incomplete
	}
	if err := s.changes.events(ctx, list, min(hashOver, s.hashOver), emit); err != nil {
		return err
	}
	return incomplete
}

// found is an element of the answer to a scan by another process. The last one is the end, and has the error of the scan, if there
// was one.
type found struct {
	File  *audit.File `json:"file,omitempty"`
	End   bool        `json:"end,omitempty"`
	Error string      `json:"error,omitempty"`
}

// stream starts a scan, and returns a pipe with its result, which has no bound. The scan ends when the reader closes the pipe.
func (s *spawned) stream(ctx context.Context, c changedCall) (*os.File, error) {
	ctx, done, err := s.scans.begin(ctx)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		done()
		return nil, err
	}
	go func() { // scans.end waits for done
		defer done()
		defer w.Close()
		stop := context.AfterFunc(ctx, func() { w.SetWriteDeadline(time.Unix(1, 0)) })
		defer stop()
		_ = s.write(ctx, w, c) // an error: no one reads
	}()
	return r, nil
}

func (s *spawned) write(ctx context.Context, w io.Writer, c changedCall) error {
	buf := bufio.NewWriterSize(w, 64<<10)
	out := json.NewEncoder(buf)
	emit := func(f *audit.File) error { return out.Encode(found{File: f}) }
	if !c.Report {
		emit = nil
	}
	end := found{End: true}
	if err := s.scan(ctx, c.HashOver, emit); err != nil {
		end.Error = err.Error()
	}
	return errors.Join(out.Encode(end), buf.Flush())
}

// readFound reads the result of a scan by another process, and closes it. emit may be nil if there are no files.
func readFound(ctx context.Context, r *os.File, emit func(*audit.File) error) error {
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	in := json.NewDecoder(bufio.NewReaderSize(r, 64<<10))
	in.DisallowUnknownFields()
	for {
		var next found
		if err := in.Decode(&next); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("read what the workload changed: %w", err)
		}
		switch {
		case next.Error != "":
			return errors.New(next.Error)
		case next.End:
			return nil
		case next.File == nil || emit == nil:
			return errors.New("read what the workload changed: an element that is no file")
		}
		if err := emit(next.File); err != nil {
			return err
		}
	}
}

// scans lets one scan of the file system run at a time, and none after end.
type scans struct {
	turn    chan struct{} // has an element while a scan runs, and after end
	removed context.Context
	remove  context.CancelFunc // ends the scan that runs
	once    sync.Once
}

func newScans() *scans {
	s := &scans{turn: make(chan struct{}, 1)}
	s.removed, s.remove = context.WithCancel(context.Background())
	return s
}

// begin waits for the scan before it, and returns the context of the next one, and what ends that.
func (s *scans) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scanLimit, fmt.Errorf("it was not done within %v", scanLimit))
	stop := context.AfterFunc(s.removed, cancel)
	select {
	case s.turn <- struct{}{}:
		return ctx, func() { stop(); cancel(); <-s.turn }, nil
	case <-ctx.Done():
		stop()
		cancel()
		return nil, nil, fmt.Errorf("wait for a scan of the sandbox's files: %w", context.Cause(ctx))
	}
}

// end ends the scan that runs. No other begins.
func (s *scans) end() {
	s.once.Do(func() {
		s.remove()
		s.turn <- struct{}{}
	})
}
