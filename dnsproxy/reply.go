package dnsproxy

import (
	"encoding/binary"
	"net/netip"

	"github.com/miekg/dns"
)

// reply is the answer to a client. All addresses belong to the name in the query: CNAMEs are only recorded, because the
// guest does not need them.
type reply struct {
	rcode int
	addrs []netip.Addr // all of the type in the query
	ttl   uint32       // seconds
	// info and text are the reason for a refusal, sent as an extended DNS error (RFC 8914) to clients that use EDNS.
	info uint16
	text string
}

const (
	optSize  = 11 // of an OPT record without options
	edeSize  = 6  // of an extended error without text
	maxText  = 300
	noInfo   = dns.ExtendedErrorCodeOther // 0: no extended error is sent
	nameHere = 0xc000 | headerSize        // a pointer to the question's name
)

// pack appends the reply to buf, which must be empty, as one message of at most limit bytes. If it is too long, pack
// omits the text of an error, and then addresses. If it omits addresses it sets the truncation bit, so that the client
// retries over TCP (RFC 2181, section 9).
func (q *query) pack(buf []byte, r reply, limit int) []byte {
	flags := flagResponse | flagAvailable | q.flags&(opcodeMask|flagRecursion|flagChecking) | uint16(r.rcode)&0xf
	buf = binary.BigEndian.AppendUint16(buf, q.id)
	buf = binary.BigEndian.AppendUint16(buf, flags)
	buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0)
	if len(q.question) > 0 {
		buf[5] = 1
		buf = append(buf, q.question...)
	}
	if q.edns {
		limit -= optSize
	}
	n := 0
	for _, a := range r.addrs {
		if len(buf)+12+a.BitLen()/8 > limit {
			buf[2] |= flagTruncated >> 8
			break
		}
		buf = appendAddr(buf, a, r.ttl)
		n++
	}
	binary.BigEndian.PutUint16(buf[6:], uint16(n))
	if q.edns {
		buf[11] = 1
		buf = appendOPT(buf, r, limit)
	}
	return buf
}

func appendAddr(buf []byte, a netip.Addr, ttl uint32) []byte {
	kind := uint16(dns.TypeAAAA)
	if a.Is4() {
		kind = dns.TypeA
	}
	buf = binary.BigEndian.AppendUint16(buf, nameHere)
	buf = binary.BigEndian.AppendUint16(buf, kind)
	buf = binary.BigEndian.AppendUint16(buf, dns.ClassINET)
	buf = binary.BigEndian.AppendUint32(buf, ttl)
	buf = binary.BigEndian.AppendUint16(buf, uint16(a.BitLen()/8))
	if a.Is4() {
		b := a.As4()
		return append(buf, b[:]...)
	}
	b := a.As16()
	return append(buf, b[:]...)
}

// appendOPT answers EDNS with EDNS (RFC 6891, section 6.1.1), and with an extended error if there is one and it fits
// into limit.
func appendOPT(buf []byte, r reply, limit int) []byte {
	buf = append(buf, 0)
	buf = binary.BigEndian.AppendUint16(buf, dns.TypeOPT)
	buf = binary.BigEndian.AppendUint16(buf, maxUDP)
	buf = append(buf, byte(r.rcode>>4), 0, 0, 0) // the rcode's upper bits, version 0, no flags
	room := limit + optSize - len(buf) - 2 - edeSize
	if r.info == noInfo || room < 0 {
		return append(buf, 0, 0)
	}
	text := r.text[:min(len(r.text), maxText)]
	if len(text) > room {
		text = ""
	}
	buf = binary.BigEndian.AppendUint16(buf, uint16(edeSize+len(text)))
	buf = binary.BigEndian.AppendUint16(buf, dns.EDNS0EDE)
	buf = binary.BigEndian.AppendUint16(buf, uint16(2+len(text)))
	buf = binary.BigEndian.AppendUint16(buf, r.info)
	return append(buf, text...)
}
