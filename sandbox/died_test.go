package sandbox

import (
	"errors"
	"testing"
	"time"

	"github.com/custody-project/custody/vmm"
)

// lateVM is a VM whose end is noticed a while after its channel has ended.
type lateVM struct {
	vmm.VM
	done chan struct{}
}

func (v lateVM) Done() <-chan struct{} { return v.done }
func (v lateVM) Err() error            { return errors.New("signal: killed") }

// TestLateEnd: an error of the channel is that of a VM that died, also if the host is busy with removing it.
func TestLateEnd(t *testing.T) {
	v := lateVM{done: make(chan struct{})}
	time.AfterFunc(500*time.Millisecond, func() { close(v.done) })
	w := &Warm{vm: v}
	if err := w.diagnose(errors.New("EOF")); !errors.Is(err, ErrVMDied) {
		t.Errorf("%v", err)
	}
}
