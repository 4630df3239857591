package channel

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// never is longer than any VM stays frozen.
const never = 50 * 365 * 24 * time.Hour

// window is yamux's smallest receive window: the maximum of unread bytes of one stream.
const window = 256 << 10

// yamuxConfig has no timeout that a frozen VM could exceed: a guest that is
// paused for hours is not lost. A lost guest closes the port.
func yamuxConfig() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          256,
		EnableKeepAlive:        false,
		KeepAliveInterval:      never,
		ConnectionWriteTimeout: never,
		MaxStreamWindowSize:    window,
		LogOutput:              io.Discard,
	}
}

// guard checks the guest's frames before the host's yamux and refuses those
// that an honest guest has no reason to send but that would cost the host
// memory or goroutines: streams opened by the guest, pings, unknown types and
// frames larger than a window. The format is yamux's spec.md: version 1 byte,
// type 1, flags 2, stream 4, length 4, then data.
type guard struct {
	io.ReadWriteCloser
	head [frameHead]byte
	have int   // bytes of head that have been read
	give int   // bytes of head that have been handed on
	body int64 // bytes of data until the next head

	parking atomic.Bool   // the guest may end the session with goAway
	parked  chan struct{} // closed when it has; nothing more is read then
	ended   bool
}

// goAway is the frame with which a guest that was suspended ends its last session: it has left yamux.
var goAway = [frameHead]byte{1: typeGoAway}

const (
	frameHead = 12

	typeData   = 0
	typeWindow = 1
	typeGoAway = 3
	flagSYN    = 1
	flagsKnown = 1 | 2 | 4 | 8 // SYN ACK FIN RST
)

// Read implements io.Reader. It is called by one goroutine at a time.
func (g *guard) Read(p []byte) (int, error) {
	if g.ended {
		return 0, io.EOF
	}
	if g.body > 0 {
		n, err := g.ReadWriteCloser.Read(p[:min(int64(len(p)), g.body)])
		g.body -= int64(n)
		return n, err
	}
	for g.have < frameHead {
		n, err := g.ReadWriteCloser.Read(g.head[g.have:])
		g.have += n
		if g.have == frameHead {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if g.give == 0 {
		if err := checkFrame(g.head); err != nil {
			return 0, err
		}
		if g.parking.Load() && g.head == goAway {
			g.ended = true
			close(g.parked)
			return 0, io.EOF
		}
	}
	n := copy(p, g.head[g.give:])
	g.give += n
	if g.give == frameHead {
		if g.head[1] == typeData {
			g.body = int64(binary.BigEndian.Uint32(g.head[8:]))
		}
		g.have, g.give = 0, 0
	}
	return n, nil
}

func checkFrame(h [frameHead]byte) error {
	flags := binary.BigEndian.Uint16(h[2:])
	stream := binary.BigEndian.Uint32(h[4:])
	length := binary.BigEndian.Uint32(h[8:])
	switch {
	case h[0] != 0:
		return hostile("frame of yamux version %d", h[0])
	case h[1] == typeGoAway:
		return nil
	case h[1] != typeData && h[1] != typeWindow:
		return hostile("yamux frame of type %d", h[1])
	case flags&flagSYN != 0 || flags&^flagsKnown != 0 || stream%2 == 0:
		return hostile("yamux frame for stream %d with flags %#x: only the host opens streams", stream, flags)
	case h[1] == typeData && length > window:
		return hostile("yamux frame of %d bytes is over the window of %d", length, window)
	}
	return nil
}

// past is a deadline that unblocks a caller that waits on a stream.
func past() time.Time { return time.Unix(1, 0) }

// unblock ends the reads and writes that wait on a stream, which then fail.
func unblock(c net.Conn) { c.SetDeadline(past()) }
