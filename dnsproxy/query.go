package dnsproxy

import (
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"

	"github.com/custody-project/custody/netpolicy"
)

// query is a parsed query of a guest. Its slices point into the packet.
type query struct {
	id       uint16
	flags    uint16
	question []byte // name, type and class, as in the packet
	// name is in the form of netpolicy.Name if it is a host name, and otherwise as
	// RFC 4343 (section 2.1) escapes it, which netpolicy.Name never accepts.
	name   string
	host   bool // name is a host name
	qtype  uint16
	class  uint16
	edns   bool
	size   int // of the largest UDP answer that the client accepts
	flawed *flaw
}

// flaw is the reason for which a query is not answered.
type flaw struct {
	rcode  int // of the reply; drop for none
	reason string
}

// drop means that no reply is sent.
const drop = -1

// Flaws of a packet. Responses and packets without a header get no reply, because replies to replies cause loops.
var (
	flawShort    = &flaw{drop, "not a DNS message: shorter than a header"}
	flawResponse = &flaw{drop, "a response, not a query"}
	flawOpcode   = &flaw{dns.RcodeNotImplemented, "not a standard query"}
	flawCounts   = &flaw{dns.RcodeFormatError, "not exactly one question, or records that no query has"}
	flawQuestion = &flaw{dns.RcodeFormatError, "the question cannot be read"}
	flawExtra    = &flaw{dns.RcodeFormatError, "the additional records cannot be read"}
	flawVersion  = &flaw{dns.RcodeBadVers, "an unknown version of EDNS"}
	flawTooLong  = &flaw{drop, "longer than any query"}
)

// Bits of the header's flags (RFC 1035, section 4.1.1; RFC 4035, section 3.2).
const (
	flagResponse  = 1 << 15
	flagTruncated = 1 << 9
	flagRecursion = 1 << 8 // desired
	flagAvailable = 1 << 7 // recursion
	flagChecking  = 1 << 4 // disabled
	opcodeMask    = 0xf << 11
)

const (
	headerSize = 12
	// maxQuery is the size of the largest query that is accepted: a name, an OPT record and its options fit.
	maxQuery = 1232
	// minUDP is a size that every client accepts (RFC 1035, section 4.2.1); maxUDP is a size that fits the guest's link
	// without fragmentation, and limits the client's value.
	minUDP, maxUDP = 512, 1232
)

// parse parses a packet, which may be malformed in any way. If it is, flawed is set, and so are the fields before the
// flaw. parse is strict, and reads only what an answer needs: it ignores EDNS options.
func parse(msg []byte) query {
	q := query{size: minUDP}
	if len(msg) < headerSize {
		q.flawed = flawShort
		return q
	}
	q.id, q.flags = binary.BigEndian.Uint16(msg), binary.BigEndian.Uint16(msg[2:])
	switch {
	case q.flags&flagResponse != 0:
		q.flawed = flawResponse
		return q
	case len(msg) > maxQuery:
		q.flawed = flawTooLong
		return q
	case q.flags&opcodeMask != 0:
		q.flawed = flawOpcode
		return q
	}
	count := func(i int) int { return int(binary.BigEndian.Uint16(msg[4+2*i:])) }
	if count(0) != 1 || count(1) != 0 || count(2) != 0 {
		q.flawed = flawCounts
		return q
	}
	rest, err := q.readQuestion(msg[headerSize:])
	if err != nil {
		q.flawed = flawQuestion
		return q
	}
	q.flawed = q.readAdditional(rest, count(3))
	return q
}

var errSyntax = errors.New("malformed")

// readQuestion reads the question at the start of b. The name must consist of labels only: no earlier name exists to
// which a compression pointer could point.
func (q *query) readQuestion(b []byte) (rest []byte, err error) {
	var text [4 * 255]byte // each byte of a name is at most \DDD
	name, plain, i := text[:0], true, 0
	for {
		if i >= len(b) || i > 254 {
			return nil, errSyntax
		}
		n := int(b[i])
		if n == 0 {
			break
		}
		if n > 63 || i+1+n > len(b) {
			return nil, errSyntax
		}
		if i > 0 {
			name = append(name, '.')
		}
		name, plain = appendLabel(name, b[i+1:i+1+n], plain)
		i += 1 + n
	}
	i++
	if len(b) < i+4 {
		return nil, errSyntax
	}
	q.question = b[:i+4]
	q.qtype, q.class = binary.BigEndian.Uint16(b[i:]), binary.BigEndian.Uint16(b[i+2:])
	if i == 1 {
		name = append(name, '.')
	}
	q.name = string(name)
	if plain {
		_, q.host = netpolicy.Name(q.name)
	}
	return b[i+4:], nil
}

// appendLabel appends a label in lower case. It escapes bytes that host names cannot contain, so that a dot within a
// label cannot be mistaken for a separator; plain becomes false.
func appendLabel(name, label []byte, plain bool) ([]byte, bool) {
	for _, c := range label {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			name = append(name, c)
		case c >= 'A' && c <= 'Z':
			name = append(name, c|0x20)
		case c > ' ' && c <= '~':
			name, plain = append(name, '\\', c), false
		default:
			name, plain = append(name, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10), false
		}
	}
	return name, plain
}

// readAdditional finds the OPT record (RFC 6891, section 6.1). It ignores other records, such as signatures, but they
// must be well formed.
func (q *query) readAdditional(b []byte, count int) *flaw {
	for range count {
		rr, rest, ok := cutRecord(b)
		if !ok {
			return flawExtra
		}
		b = rest
		if rr.kind != dns.TypeOPT {
			continue
		}
		if q.edns || !rr.root {
			return flawExtra
		}
		q.edns = true
		q.size = min(max(int(rr.class), minUDP), maxUDP)
		if rr.ttl>>16&0xff != 0 {
			return flawVersion
		}
	}
	return nil
}

// record is the start of a resource record.
type record struct {
	root  bool // the owner is the root
	kind  uint16
	class uint16
	ttl   uint32
}

func cutRecord(b []byte) (rr record, rest []byte, ok bool) {
	i := 0
	for { // the owner's name; a pointer ends it
		if i >= len(b) {
			return rr, nil, false
		}
		n := int(b[i])
		if n == 0 {
			i++
			break
		}
		if n >= 0xc0 {
			i += 2
			break
		}
		if n > 63 {
			return rr, nil, false
		}
		i += 1 + n
	}
	if i+10 > len(b) {
		return rr, nil, false
	}
	rr = record{root: i == 1, kind: binary.BigEndian.Uint16(b[i:]), class: binary.BigEndian.Uint16(b[i+2:]), ttl: binary.BigEndian.Uint32(b[i+4:])}
	end := i + 10 + int(binary.BigEndian.Uint16(b[i+8:]))
	if end > len(b) {
		return rr, nil, false
	}
	return rr, b[end:], true
}
