package transfer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/workspace"
)

// FuzzServer makes the calls that the input describes. Nothing outside is touched, nothing in a guarded place, no mode is
// special, and no part is left.
func FuzzServer(f *testing.F) {
	f.Add([]byte("\x00\x03dir\x01\x05dir/x\x03\x01"))
	f.Add([]byte("\x00\x05.git/\x00\x0a.git/hooks\x01\x0c.git/hooks/x\x03\x01\x02\x04link\x03\x02"))
	f.Add([]byte("\x02\x01a\x02\x04b\x00..\x03\x01\x01\x03a/x\x00\x01a\x01\x03a/x\x04\x02\x03\x02\x05"))
	f.Add([]byte("\x06\x18{\"Name\":\"Li4=\",\"Mode\":9}"))
	f.Add([]byte("\x01\x0aowner/evil\x00\x05owner\x01\x07../evil\x07\x01\x05\x01\x01x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		sc := newScene(t)
		s := NewServer(nil, sc.destination(t, 1<<16))
		caller{t, s.Handlers(), b}.run()
		must(t, s.Close())
		sc.check(t)
		for name, text := range list(t, sc.out) {
			mode, _, _ := strings.Cut(text, " ")
			if workspace.Executes(name) != "" && mode[0] != 'd' {
				t.Errorf("%q is there", name)
			}
			if len(mode) != 10 || !strings.Contains("-dL", mode[:1]) || mode[0] != 'L' && (mode[5] == 'w' || mode[8] == 'w') {
				t.Errorf("%q has the mode %s", name, mode)
			}
		}
	})
}

// caller makes calls of handlers as bytes describe.
type caller struct {
	t        *testing.T
	handlers map[string]privsep.Handler
	b        []byte
}

// next takes a byte, and a string of as many bytes as the one after it states.
func (c *caller) next() (op byte, s []byte) {
	op, n := c.b[0], min(int(c.b[1]), len(c.b)-2)
	s, c.b = c.b[2:2+n], c.b[2+n:]
	return op, s
}

func (c caller) run() {
	names := []string{callDirectory, callFile, callLink, callPlace, callDrop, callOpen, callPacked, callClose, callPack}
	c.call(callOpen, []byte("{}"), nil)
	for len(c.b) >= 2 {
		op, s := c.next()
		var args any
		name := names[int(op&15)%len(names)]
		switch name {
		case callDirectory:
			args = directoryCall{s, uint32(op) << 5 * 0x1001}
		case callFile:
			args = fileCall{s, channel.Attributes{Mode: fs.FileMode(op)<<24 | 0o7777, Size: int64(op >> 5)}}
		case callLink:
			from, to, _ := strings.Cut(string(s), "\x00")
			args = linkCall{[]byte(from), []byte(to)}
		case callPlace:
			var ids []channel.PartID
			for _, id := range s {
				ids = append(ids, channel.PartID(id))
			}
			args = placeCall{ids}
		case callDrop:
			args = dropCall{channel.PartID(len(s))}
		default: // a body of its own
			c.call(names[int(op>>4)%len(names)], s, nil)
			continue
		}
		body, err := json.Marshal(args)
		must(c.t, err)
		c.call(name, body, s)
	}
}

func (c caller) call(name string, body, content []byte) {
	_, files, _ := c.handlers[name](c.t.Context(), body, nil)
	for _, f := range files {
		if _, err := f.Write(content); err != nil && !errors.Is(err, syscall.EPIPE) {
			c.t.Errorf("write: %v", err)
		}
		f.Close()
	}
}
