package firecracker

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Firecracker reports a failed write to the guest, whose file system then fails. So the machine is stopped before the
// host's disk is full: spaceEvery is the interval of the checks, spaceLeft the free space at which it stops.
const (
	spaceEvery = 50 * time.Millisecond
	spaceLeft  = 64 << 20
)

// watchSpace reports a stall, and freezes the machine, while the disk of the host has too little space. It returns when
// the machine has ended.
func (v *vm) watchSpace() {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		select {
		case <-v.done:
			return
		case <-tick.C:
		}
		free, err := freeSpace(v.disk)
		if err != nil || free >= spaceLeft {
			continue
		}
		if !v.stop() {
			continue
		}
		select {
		case v.stalls <- fmt.Sprintf("the host's disk has %d MiB left", free>>20):
		default: // an earlier report has not been received yet
		}
	}
}

// stop freezes a running machine and reports whether it was running.
func (v *vm) stop() bool {
	v.turn.Lock()
	defer v.turn.Unlock()
	return !v.frozen && v.set(context.Background(), true) == nil
}

// freeSpace returns how many bytes can be written to the file system of f.
func freeSpace(f *os.File) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}
