package gvisor

import (
	"errors"
	"os"
	"sync"
)

// runsc takes no TAP: it opens AF_PACKET sockets on the devices of its network namespace. So the
// namespace has a TAP of its own, and the relay carries each frame between it and that of the fence:
//
//	sentry ── AF_PACKET ── eth0 (TAP) ── relay ── TAP of the fence ── TCX programs, gateway
//
// The relay drops nothing, so that the fence sees and counts each frame; it translates one answer of the fence
// (frames.go). Frames carry the header of virtio-net, so that segments of up to 64 KiB pass whole.
//
// Frames are parsed in the worker, which needs no privileges for the relay: both devices are descriptors.
const maxFrame = 65536 + 128

// relay carries frames between the container's device and the fence's TAP until it is closed.
type relay struct {
	device, tap *os.File
	work        sync.WaitGroup
}

// newRelay takes over both devices.
func newRelay(device, tap *os.File) *relay {
	r := &relay{device: device, tap: tap}
	r.work.Go(func() { carry(r.tap, r.device, func([]byte) {}) })
	r.work.Go(func() { carry(r.device, r.tap, explain) })
	return r
}

// carry copies frames, changed by edit, until one end is closed. A frame that the other end does not take is lost, as on any link.
func carry(to, from *os.File, edit func(frame []byte)) {
	buf := make([]byte, maxFrame)
	for {
		n, err := from.Read(buf)
		if err != nil && n <= 0 {
			return
		}
		edit(buf[:n])
		if _, err := to.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

func (r *relay) close() error {
	err := errors.Join(r.device.Close(), r.tap.Close())
	r.work.Wait()
	return err
}
