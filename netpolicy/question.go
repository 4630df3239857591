package netpolicy

import (
	"fmt"
	"net/netip"
	"strings"
)

// QuestionOptions are the parts of a question that its text does not contain.
type QuestionOptions struct {
	UDP    bool       // the port is a UDP port
	Method string     // of an HTTP request; empty for a URL: GET
	Addr   netip.Addr // the address that a name resolves to, if known
}

// ParseQuestion parses a question from text: a host or an address, with or without a port, or a URL with https:// or
// http://, whose path is used as in the request.
func ParseQuestion(target string, o QuestionOptions) (Question, error) {
	q := Question{Addr: o.Addr}
	host, path := target, "/"
	scheme, rest, isURL := strings.Cut(target, "://")
	if isURL {
		if scheme != "https" && scheme != "http" {
			return q, fmt.Errorf("%q: a URL begins with https:// or http://", target)
		}
		end := strings.IndexAny(rest+"/", "/?#")
		host, path = rest[:end], rest[end:]
		path = path[:strings.IndexAny(path+"?", "?#")] // as in the request: nothing is cleaned or decoded
		path = "/" + strings.TrimPrefix(path, "/")
		q.Port = Port{Proto: "tcp", Number: map[string]uint16{"https": 443, "http": 80}[scheme]}
	}
	host, port, err := SplitPort(host)
	if err != nil {
		return q, fmt.Errorf("%q: %w", target, err)
	}
	if port != 0 {
		q.Port = Port{Proto: "tcp", Number: port}
	}
	if o.UDP {
		if q.Port.Number == 0 || isURL {
			return q, fmt.Errorf("%q: --udp needs a port, as in ns.example.com:53", target)
		}
		q.Port.Proto = "udp"
	}
	if isURL || o.Method != "" {
		q.Request = &Request{Method: strings.ToUpper(o.Method), Path: path}
		if o.Method == "" {
			q.Request.Method = "GET"
		}
	}
	if o.Method != "" && q.Port == (Port{}) {
		q.Port = Port{Proto: "tcp", Number: 443}
	}
	return q, q.aim(host)
}

// aim sets the question's name or address.
func (q *Question) aim(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		if q.Addr.IsValid() {
			return fmt.Errorf("%q is an address: it does not resolve to another", host)
		}
		q.Addr = addr
		return nil
	}
	name, ok := Name(host)
	if !ok {
		return fmt.Errorf("%q is neither a host name nor an address, so nothing can allow it; write names of other scripts in their xn-- form", host)
	}
	q.Name = name
	return nil
}
