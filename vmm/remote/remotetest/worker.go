// Package remotetest controls machines from workers in tests.
package remotetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/privsep/privseptest"
	"github.com/custody-project/custody/vmm"
)

// Control is a machine that a test can start and control, itself or through a worker.
type Control interface {
	// Start starts the machine within the time.
	Start(ctx context.Context, within time.Duration) error
	// Do does one of the operations thaw, freeze, read (a byte of the channel), died (waits for the end and returns its reason) and destroy.
	Do(ctx context.Context, operation string) error
}

// Local controls a machine in the test's process.
type Local struct {
	Driver  vmm.Driver
	Machine vmm.Machine
	vm      vmm.VM
}

// Start implements Control.
func (l *Local) Start(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	vm, err := l.Driver.Start(ctx, l.Machine)
	if err == nil {
		l.vm = vm
	}
	return err
}

// Do implements Control.
func (l *Local) Do(ctx context.Context, operation string) error {
	switch operation {
	case "thaw":
		return l.vm.Thaw(ctx)
	case "freeze":
		return l.vm.Freeze(ctx)
	case "read":
		_, err := l.vm.Channel().Read(make([]byte, 1))
		return err
	case "died":
		select {
		case <-l.vm.Done():
			return l.vm.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	case "destroy":
		return l.vm.Destroy(ctx)
	}
	return fmt.Errorf("no operation %q", operation)
}

// The calls of a Worker.
const (
	callStart = "start"
	callDo    = "do"
	callRaw   = "raw"
	callFlood = "flood"
)

type rawCall struct {
	Name string
	Body json.RawMessage
}

type floodCall struct {
	rawCall
	Times int
}

// Work is the worker of Start, which controls the machine with this driver.
func Work(driver func(*privsep.Conn) vmm.Driver) error {
	var conn *privsep.Conn
	machine := &Local{Machine: vmm.Machine{ID: "test"}}
	ctx := context.Background()
	none := struct{}{}
	conn, _, err := privsep.Enter(map[string]privsep.Handler{
		callStart: privsep.Handle(func(_ context.Context, within time.Duration) (any, []*os.File, error) {
			machine.Driver = driver(conn)
			return none, nil, machine.Start(ctx, within)
		}),
		callDo: privsep.Handle(func(ctx context.Context, operation string) (any, []*os.File, error) {
			if machine.vm == nil {
				return nil, nil, errors.New("the test has not started the machine")
			}
			return none, nil, machine.Do(ctx, operation)
		}),
		callRaw: privsep.Handle(func(ctx context.Context, c rawCall) (any, []*os.File, error) {
			files, err := conn.Call(ctx, c.Name, c.Body, nil)
			return len(files), files, err
		}),
		callFlood: privsep.Handle(func(_ context.Context, c floodCall) (any, []*os.File, error) {
			for range c.Times {
				go conn.Call(ctx, c.Name, c.Body, nil) // ends with the worker
			}
			return none, nil, nil
		}),
	}, 0)
	if err != nil {
		return err
	}
	return conn.Run(ctx)
}

// Worker controls the machine of a server through a worker.
type Worker struct{ *privsep.Process }

// Start starts a worker, whose TestMain calls Work. It ends with the test, and then the server is closed.
func Start(t testing.TB, s privsep.Server) *Worker {
	t.Helper()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return &Worker{privseptest.Start(t, privseptest.Worker("machine"), s.Handlers())}
}

// Start implements Control.
func (w *Worker) Start(ctx context.Context, within time.Duration) error {
	_, err := w.Call(ctx, callStart, within, nil)
	return err
}

// Do implements Control.
func (w *Worker) Do(ctx context.Context, operation string) error {
	_, err := w.Call(ctx, callDo, operation, nil)
	return err
}

// Raw has the worker make a call as one that was taken over could. It returns the files that the call did.
func (w *Worker) Raw(ctx context.Context, name, body string) ([]*os.File, error) {
	return w.Call(ctx, callRaw, rawCall{name, json.RawMessage(body)}, nil)
}

// Flood has the worker make a call many times concurrently. It does not wait for the results.
func (w *Worker) Flood(ctx context.Context, name, body string, times int) error {
	_, err := w.Call(ctx, callFlood, floodCall{rawCall{name, json.RawMessage(body)}, times}, nil)
	return err
}
