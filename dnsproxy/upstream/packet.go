package upstream

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/miekg/dns"
)

// question is a name in lower case without its final dot, and A or AAAA.
type question struct {
	name  string
	qtype uint16
}

const (
	headerSize = 12
	// ednsSize is the maximum size of UDP responses that queries announce; it avoids fragmentation nearly everywhere
	// (DNS flag day 2020).
	ednsSize = 1232
)

// packet is a query in wire format (RFC 1035, section 4.1). Its OPT record has a size and no options: no client subnet,
// no cookie.
type packet struct {
	bytes []byte
	end   int // of the question
}

// pack packs a query with a random id. With mixed, the case of each letter of the name is random.
func (q question) pack(mixed bool) (packet, error) {
	var m dns.Msg
	m.RecursionDesired = true
	m.Question = []dns.Question{{Name: q.name + ".", Qtype: q.qtype, Qclass: dns.ClassINET}}
	m.SetEdns0(ednsSize, false)
	wire, err := m.PackBuffer(make([]byte, 0, 512))
	if err != nil {
		return packet{}, fmt.Errorf("the name %q cannot be encoded: %w", q.name, err)
	}
	end := headerSize
	for wire[end] > 0 { // a label may contain zeros: CNAMEs can name any bytes
		end += 1 + int(wire[end])
	}
	p := packet{wire, end + 5}
	p.shuffle(mixed)
	return p, nil
}

// shuffle sets a new random id, and random capitals if mixed.
func (p packet) shuffle(mixed bool) {
	var random [2 + 32]byte
	rand.Read(random[:]) // never fails: see crypto/rand
	copy(p.bytes, random[:2])
	for i, name := 0, p.bytes[headerSize:p.end-4]; i < len(name); i++ {
		if isLetter(name[i]) { // a length byte is never a letter: it is under 64
			name[i] |= 0x20
			if mixed && random[2+i/8]>>(i%8)&1 == 1 {
				name[i] &^= 0x20
			}
		}
	}
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// likeness is how well a response matches a query.
type likeness int

const (
	foreign    likeness = iota // another id or question: stale or forged
	recased                    // equal except for capitals
	exact                      // id and question are equal
	truncation                 // exact, and truncated
)

// compare reports whether msg is a response to the query.
func (p packet) compare(msg []byte) likeness {
	if len(msg) < p.end || !bytes.Equal(msg[:2], p.bytes[:2]) {
		return foreign
	}
	flags := binary.BigEndian.Uint16(msg[2:])
	if flags>>15 != 1 || flags>>11&0xf != dns.OpcodeQuery || binary.BigEndian.Uint16(msg[4:]) != 1 {
		return foreign
	}
	switch asked, told := p.bytes[headerSize:p.end], msg[headerSize:p.end]; {
	case bytes.Equal(asked, told) && flags>>9&1 == 1:
		return truncation
	case bytes.Equal(asked, told):
		return exact
	case sameFolded(asked, told):
		return recased
	}
	return foreign
}

// sameFolded compares questions, ignoring case in the name. The last four bytes, type and class, are compared exactly.
func sameFolded(a, b []byte) bool {
	for i := range a {
		if a[i] != b[i] && (i >= len(a)-4 || !isLetter(a[i]) || a[i]|0x20 != b[i]|0x20) {
			return false
		}
	}
	return true
}

var errResponse = errors.New("the response is malformed")

// unpack parses a response that compare has accepted. A response with fewer records than its header announces is an
// error, not a negative answer.
func unpack(msg []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(msg); err != nil {
		return nil, fmt.Errorf("%w: %w", errResponse, err)
	}
	for i, got := range []int{len(m.Answer), len(m.Ns)} {
		if want := int(binary.BigEndian.Uint16(msg[6+2*i:])); got != want {
			return nil, fmt.Errorf("%w: %d records where it announces %d", errResponse, got, want)
		}
	}
	return m, nil
}
