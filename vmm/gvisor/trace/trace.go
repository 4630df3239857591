// Package trace reads the messages of gVisor's remote trace sink: what the
// sentry, gVisor's kernel, observed of the processes of a container.
//
// A message is a header of 8 bytes or more (its own size and the message's
// type, 16 bits each, and the number of messages dropped so far, 32 bits, all
// in the host's byte order) and a protobuf. The format is defined by
// pkg/sentry/seccheck/sinks/remote/wire and pkg/sentry/seccheck/points of
// gVisor's source. Fields that this package does not use are skipped, so that
// it reads messages of later versions too.
//
// gVisor drops a message with a string that is not UTF-8 without counting it.
// So only messages that cannot do without have strings, and each call of execve
// has a Raw message, which has none.
package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

// Version is the version of the protocol that both ends name in their handshake.
const Version = 1

// MaxMessage bounds a message in bytes: that of an execve has up to 2 MiB of arguments and 2 MiB of environment.
const MaxMessage = 5 << 20

// The types of messages that Parse decodes.
const (
	typeClone   = 2
	typeExec    = 3
	typeEnd     = 4
	typeExit    = 5
	typeRaw     = 6
	typeOpen    = 7
	typeConnect = 10
	typeAttempt = 11
	typeSocket  = 12
)

// Process is a process as the sentry names it, in the root PID namespace of the container.
type Process struct {
	PID   int
	Start int64 // nanoseconds of the sentry's clock; tells apart processes that had the same PID
	PPID  int
	UID   int
	Cwd   string
}

// Message is one observation. At most one of its pointers is
// set; none is set where the type is not one that this package decodes.
type Message struct {
	// Dropped counts the messages that the sentry dropped before this one because
	// the host did not read. It wraps around.
	Dropped uint32
	Time    time.Time // of the sentry's clock
	Process Process
	Thread  int // of Process; equal to Process.PID for the main thread

	Clone   *Clone
	Attempt *Attempt
	Raw     *Raw
	Exec    *Exec
	Exit    *Exit // of a thread
	End     *End
	Open    *Open
	Connect *Connect
	Socket  *Socket
}

// Clone is the creation of a thread by Process. It is a process of its own if PID is not that of Process.
type Clone struct {
	PID   int
	Start int64
}

// Attempt is a call of execve(2) or execveat(2) that begins.
type Attempt struct{ Path string }

// Raw is a system call that returned. For a call of execve(2) that passed the checks of its arguments, Errno is 0 although
// loading the program can still fail.
type Raw struct {
	Number uint64
	Errno  int
}

// Exec is a successful execve(2).
type Exec struct {
	Path   string
	Argv   []string
	Memory bool // the program's file is in memory: memfd_create(2)
}

// Exit is the end of a thread. Status is a wait status as in wait(2).
type Exit struct{ Status uint32 }

// End is the end of a process: all its threads have ended. Status is a wait status as in wait(2).
type End struct{ Status uint32 }

// Open is a call of open(2), openat(2) or creat(2) that returned.
type Open struct {
	Dir   string // the directory that a relative Path starts at; empty: the current directory
	Path  string
	Flags uint32
	Errno int
}

// Socket is a call of socket(2) that returned. Type is without its flags.
type Socket struct {
	FD                  int // negative: it failed
	Family, Type, Proto int
}

// Connect is a call of connect(2) that returned.
type Connect struct {
	FD    int
	To    netip.AddrPort // invalid for other families than IPv4 and IPv6
	Errno int
}

var errShort = errors.New("trace message: it ends early")

// Parse decodes one message.
func Parse(b []byte) (Message, error) {
	if len(b) < 8 {
		return Message{}, errShort
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < 8 || size > len(b) {
		return Message{}, fmt.Errorf("trace message: a header of %d bytes in a message of %d", size, len(b))
	}
	m := Message{Dropped: binary.NativeEndian.Uint32(b[4:])}
	body := b[size:]
	var err error
	switch binary.NativeEndian.Uint16(b[2:]) {
	case typeClone:
		err = m.clone(body)
	case typeExec:
		err = m.exec(body)
	case typeEnd:
		m.End = &End{}
		err = m.exit(body, &m.End.Status)
	case typeExit:
		m.Exit = &Exit{}
		err = m.exit(body, &m.Exit.Status)
	case typeRaw:
		err = m.raw(body)
	case typeAttempt:
		err = m.attempt(body)
	case typeOpen:
		err = m.open(body)
	case typeConnect:
		err = m.connect(body)
	case typeSocket:
		err = m.socket(body)
	}
	return m, err
}

// context decodes the fields that all messages have in common.
func (m *Message) context(b []byte) error {
	return fields(b, func(n protowire.Number, v value) error {
		switch n {
		case 1:
			m.Time = time.Unix(0, int64(v.num)).UTC()
		case 2:
			m.Thread = int(int32(v.num))
		case 4:
			m.Process.PID = int(int32(v.num))
		case 5:
			m.Process.Start = int64(v.num)
		case 7:
			return fields(v.bytes, func(n protowire.Number, v value) error {
				if n == 2 {
					m.Process.UID = int(uint32(v.num))
				}
				return nil
			})
		case 8:
			m.Process.Cwd = string(v.bytes)
		case 10:
			m.Process.PPID = int(int32(v.num))
		}
		return nil
	})
}

func (m *Message) clone(b []byte) error {
	c := &Clone{}
	m.Clone = c
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 4:
			c.PID = int(int32(v.num))
		case 5:
			c.Start = int64(v.num)
		}
		return err
	})
}

func (m *Message) exec(b []byte) error {
	e := &Exec{}
	m.Exec = e
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			e.Path = string(v.bytes)
		case 3:
			e.Argv = append(e.Argv, string(v.bytes))
		case 20:
			e.Memory = v.num != 0
		}
		return err
	})
}

func (m *Message) exit(b []byte, status *uint32) error {
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			*status = uint32(v.num)
		}
		return err
	})
}

func (m *Message) raw(b []byte) error {
	r := &Raw{}
	m.Raw = r
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			r.Errno, err = errno(v.bytes)
		case 4:
			r.Number = v.num
		}
		return err
	})
}

func (m *Message) attempt(b []byte) error {
	a := &Attempt{}
	m.Attempt = a
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 6:
			a.Path = string(v.bytes)
		}
		return err
	})
}

func (m *Message) open(b []byte) error {
	o := &Open{}
	m.Open = o
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			o.Errno, err = errno(v.bytes)
		case 5:
			o.Dir = string(v.bytes)
		case 6:
			o.Path = string(v.bytes)
		case 7:
			o.Flags = uint32(v.num)
		}
		return err
	})
}

func (m *Message) connect(b []byte) error {
	c := &Connect{}
	m.Connect = c
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			c.Errno, err = errno(v.bytes)
		case 4:
			c.FD = int(int64(v.num))
		case 6:
			c.To = address(v.bytes)
		}
		return err
	})
}

func (m *Message) socket(b []byte) error {
	s := &Socket{}
	m.Socket = s
	return fields(b, func(n protowire.Number, v value) (err error) {
		switch n {
		case 1:
			err = m.context(v.bytes)
		case 2:
			s.FD, err = result(v.bytes)
		case 4:
			s.Family = int(int32(v.num))
		case 5:
			s.Type = int(int32(v.num)) &^ (unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)
		case 6:
			s.Proto = int(int32(v.num))
		}
		return err
	})
}

// result decodes what a system call returned: negative if it failed.
func result(b []byte) (n int, err error) {
	err = fields(b, func(f protowire.Number, v value) error {
		switch {
		case f == 1 && n >= 0:
			n = int(int64(v.num))
		case f == 2 && v.num != 0:
			n = -1
		}
		return nil
	})
	return n, err
}

// errno decodes the end of a system call.
func errno(b []byte) (n int, err error) {
	err = fields(b, func(f protowire.Number, v value) error {
		if f == 2 {
			n = int(int32(v.num))
		}
		return nil
	})
	return n, err
}

// address decodes a struct sockaddr_in or sockaddr_in6.
func address(b []byte) netip.AddrPort {
	if len(b) < 8 {
		return netip.AddrPort{}
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b); {
	case family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port)
	case family == unix.AF_INET6 && len(b) >= 24:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}

// value is a field's value: num of a varint, bytes of a string or message.
type value struct {
	num   uint64
	bytes []byte
}

// fields calls each with the varints and the byte strings of a protobuf, in their order. Other fields are skipped.
func fields(b []byte, each func(protowire.Number, value) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return fmt.Errorf("trace message: %w", protowire.ParseError(size))
		}
		b = b[size:]
		var v value
		switch kind {
		case protowire.VarintType:
			v.num, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v.bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return fmt.Errorf("trace message: field %d: %w", n, protowire.ParseError(size))
		}
		b = b[size:]
		if kind != protowire.VarintType && kind != protowire.BytesType {
			continue
		}
		if err := each(n, v); err != nil {
			return err
		}
	}
	return nil
}
