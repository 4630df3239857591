package access

import "net/http"

// site is what the server is reached as: its names, and the origin of its pages.
type site struct {
	known  map[string]bool // hosts that a request may name
	names  int             // how many of them are configured
	isPort func(host string) bool
	origin *http.CrossOriginProtection
}

// check refuses a request to another host than the server's, or from another site.
func (s *site) check(q *request) *Problem {
	if q.rule.Port {
		if s.isPort(q.Host) {
			return nil
		}
		return unknownHost(s.names)
	}
	if p := s.checkHost(q.Request); p != nil {
		return p
	}
	return s.checkOrigin(q)
}

// checkHost refuses names that are not the server's: a page of evil.example whose name was
// made to lead here would otherwise be of the same origin.
func (s *site) checkHost(r *http.Request) *Problem {
	if host, ok := hostname(r.Host); ok && s.known[host] {
		return nil
	}
	return unknownHost(s.names)
}

// checkOrigin refuses what a page of another site had a browser send. Where SameSite ends, at
// another port of this host, browsers say same-site, which is another site all the same.
func (s *site) checkOrigin(q *request) *Problem {
	if q.rule.foreign {
		return nil
	}
	if err := s.origin.Check(q.Request); err != nil {
		return otherSite()
	}
	switch q.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return nil
	}
	return otherSite()
}
