package netpolicy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// String returns the question in the usual notation: the host, the port, the request.
func (q Question) String() string {
	s := q.Name
	switch {
	case s == "":
		s = q.Addr.String()
	case q.Addr.IsValid():
		s += " at " + q.Addr.String()
	}
	if q.Port.Number != 0 {
		s += " " + q.Port.String()
	}
	if q.Request != nil {
		s += " " + q.Request.Method + " " + q.Request.Path
	}
	return s
}

// SplitPort splits host:port or [v6]:port. Without a port, port is 0.
func SplitPort(s string) (host string, port uint16, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, 0, nil
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		return s[1 : len(s)-1], 0, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return s, 0, nil
	}
	n, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q is not a port", s[i+1:])
	}
	host = s[:i]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return host, uint16(n), nil
}

// Effect describes what happens to traffic of a guest for which Decide under p returned v.
func (p *Policy) Effect(q Question, v Verdict) string {
	switch {
	case v.Allow:
		return allowedEffect(q, v.Rule)
	case q.Name == "":
		return "its packets are dropped and recorded; a name that resolves to it is decided separately"
	case v.Rule == nil:
		return "the resolver answers REFUSED, records the query, and sends no query upstream"
	}
	switch v.Reason {
	case WrongMethod, WrongPath, UnclearPath:
		return "the gateway answers 403 with the rule, the run and the record's number"
	case SpecialRange:
		if v.Rule.Mode == Direct {
			return "the resolver removes the address from its answer, and records that"
		}
		return "the gateway does not dial the address, and records that"
	}
	for _, r := range p.Match(q.Name) {
		if r.Mode == Direct {
			return "the name is resolved, because rules name other ports of it; packets to this one are dropped and recorded"
		}
	}
	return "the name gets an address, because rules name other ports of it; a connection to this one is refused and recorded"
}

func allowedEffect(q Question, r *Rule) string {
	switch {
	case q.Name == "":
		return "its packets pass, in both directions of flows that the guest begins"
	case r.Mode == Direct:
		return "the resolver answers with the name's real addresses, to which its packets pass while the answer is valid; their contents are not inspected"
	case r.HTTP != nil && q.Request == nil:
		return "a synthetic address at which the gateway opens TLS and checks each request, then dials the name itself"
	case r.HTTP != nil:
		return "the gateway opens TLS and passes this request on"
	}
	return "a synthetic address at which the gateway checks that TLS or HTTP is for this name, then dials the name itself"
}
