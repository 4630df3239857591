package trace

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
)

func number(b []byte, field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func text(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// packet returns a message of the given type, with a process in its context.
func packet(kind uint16, dropped uint32, body func(b []byte) []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, 8)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint32(b, dropped)
	c := number(number(number(number(nil, 1, 1e9), 2, 7), 4, 6), 5, 99)
	c = text(c, 7, string(number(nil, 2, 1000)))
	c = number(text(c, 8, "/tmp"), 10, 1)
	b = text(b, 1, string(c))
	if body != nil {
		b = body(b)
	}
	return b
}

func exitOf(result int64, errno uint64) string {
	return string(number(number(nil, 1, uint64(result)), 2, errno))
}

func TestParse(t *testing.T) {
	base := Message{Time: time.Unix(1, 0).UTC(), Thread: 7, Process: Process{PID: 6, Start: 99, PPID: 1, UID: 1000, Cwd: "/tmp"}}
	address4 := string([]byte{unix.AF_INET, 0, 0x01, 0xbb, 198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	address6 := string(append([]byte{unix.AF_INET6, 0, 0, 80, 0, 0, 0, 0}, append(netip.MustParseAddr("2001:db8::1").AsSlice(), 0, 0, 0, 0)...))
	for name, tc := range map[string]struct {
		kind uint16
		body func([]byte) []byte
		want func(*Message)
	}{
		"clone": {typeClone, func(b []byte) []byte { return number(number(b, 4, 8), 5, 100) }, func(m *Message) { m.Clone = &Clone{PID: 8, Start: 100} }},
		"exec": {typeExec, func(b []byte) []byte { return number(text(text(text(b, 2, "/bin/a"), 3, "a"), 3, ""), 20, 1) }, func(m *Message) {
			m.Exec = &Exec{Path: "/bin/a", Argv: []string{"a", ""}, Memory: true}
		}},
		"exit":    {typeExit, func(b []byte) []byte { return number(b, 2, 9) }, func(m *Message) { m.Exit = &Exit{Status: 9} }},
		"end":     {typeEnd, func(b []byte) []byte { return number(b, 2, 256) }, func(m *Message) { m.End = &End{Status: 256} }},
		"raw":     {typeRaw, func(b []byte) []byte { return number(text(b, 2, exitOf(0, 2)), 4, 59) }, func(m *Message) { m.Raw = &Raw{Number: 59, Errno: 2} }},
		"attempt": {typeAttempt, func(b []byte) []byte { return text(b, 6, "/x") }, func(m *Message) { m.Attempt = &Attempt{Path: "/x"} }},
		"open": {typeOpen, func(b []byte) []byte {
			return number(text(text(text(b, 2, exitOf(3, 0)), 5, "/d"), 6, "f"), 7, unix.O_WRONLY)
		}, func(m *Message) {
			m.Open = &Open{Dir: "/d", Path: "f", Flags: unix.O_WRONLY}
		}},
		"connect, IPv4": {typeConnect, func(b []byte) []byte { return text(number(text(b, 2, exitOf(-1, 115)), 4, 5), 6, address4) }, func(m *Message) {
			m.Connect = &Connect{FD: 5, Errno: 115, To: netip.MustParseAddrPort("198.18.0.1:443")}
		}},
		"connect, IPv6":    {typeConnect, func(b []byte) []byte { return text(b, 6, address6) }, func(m *Message) { m.Connect = &Connect{To: netip.MustParseAddrPort("[2001:db8::1]:80")} }},
		"connect, short":   {typeConnect, func(b []byte) []byte { return text(b, 6, address6[:20]) }, func(m *Message) { m.Connect = &Connect{} }},
		"connect, AF_UNIX": {typeConnect, func(b []byte) []byte { return text(b, 6, "\x01\x00/run/sock") }, func(m *Message) { m.Connect = &Connect{} }},
		"socket": {typeSocket, func(b []byte) []byte {
			return number(number(text(b, 2, exitOf(4, 0)), 4, 2), 5, unix.SOCK_STREAM|unix.SOCK_CLOEXEC)
		}, func(m *Message) { m.Socket = &Socket{FD: 4, Family: 2, Type: unix.SOCK_STREAM} }},
		"socket that failed":    {typeSocket, func(b []byte) []byte { return text(b, 2, exitOf(0, 97)) }, func(m *Message) { m.Socket = &Socket{FD: -1} }},
		"fields of a later one": {typeExit, func(b []byte) []byte { return number(text(number(b, 900, 1), 901, "x"), 2, 1) }, func(m *Message) { m.Exit = &Exit{Status: 1} }},
	} {
		want := base
		want.Dropped = 3
		tc.want(&want)
		if got, err := Parse(packet(tc.kind, 3, tc.body)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	whole := packet(typeExec, 0, func(b []byte) []byte { return text(text(b, 2, "/bin/a"), 3, "a") })
	for name, b := range map[string][]byte{
		"nothing":                        nil,
		"a part of the header":           whole[:7],
		"a header shorter than itself":   append([]byte{7, 0}, whole[2:]...),
		"a header longer than all":       append([]byte{255, 255}, whole[2:]...),
		"a message that ends early":      whole[:len(whole)-1],
		"a varint without an end":        append(whole[:len(whole):len(whole)], 0x98, 0x06, 0xff),
		"the field number 0":             append(whole[:len(whole):len(whole)], 0x02, 0x00),
		"a group without an end":         append(whole[:len(whole):len(whole)], 0x1b),
		"a context that is not protobuf": packet(typeExec, 0, func(b []byte) []byte { return text(b, 1, "\xff\xff") }),
	} {
		if m, err := Parse(b); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m, err := Parse(packet(60000, 5, nil)); err != nil || m.Dropped != 5 {
		t.Errorf("a type of a later version: %+v, %v", m, err)
	}
	later := append([]byte{16, 0}, whole[2:8]...)
	later = append(append(later, make([]byte, 8)...), whole[8:]...)
	if m, err := Parse(later); err != nil || m.Exec == nil || m.Exec.Path != "/bin/a" {
		t.Errorf("a longer header: %+v, %v", m, err)
	}
}

// FuzzTrace: no message makes Parse panic, and what it returns has not more bytes than the message.
func FuzzTrace(f *testing.F) {
	for kind := range uint16(13) {
		f.Add(packet(kind, 1, func(b []byte) []byte { return number(text(text(text(b, 2, "a"), 3, "b"), 6, "cdefghijklmn"), 4, 1<<63) }))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		size := len(m.Process.Cwd)
		if m.Exec != nil {
			size += len(m.Exec.Path) + len(strings.Join(m.Exec.Argv, ""))
		}
		if m.Open != nil {
			size += len(m.Open.Dir) + len(m.Open.Path)
		}
		if size > len(b) {
			t.Errorf("%d bytes of strings in a message of %d", size, len(b))
		}
	})
}
