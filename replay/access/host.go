package access

import (
	"net/netip"
	"strings"
)

// hostname returns the host that a Host header names, in lower case and without its port:
// a name, or an address as netip writes it. false: it is neither.
func hostname(header string) (string, bool) {
	host, port := header, ""
	if rest, ok := strings.CutPrefix(header, "["); ok { // [::1]:8333
		inside, after, found := strings.Cut(rest, "]")
		addr, err := netip.ParseAddr(inside)
		if !found || err != nil || !addr.Is6() || addr.Zone() != "" || after != "" && !strings.HasPrefix(after, ":") {
			return "", false
		}
		return addr.String(), after == "" || validPort(after[1:])
	}
	if i := strings.LastIndexByte(header, ':'); i >= 0 {
		host, port = header[:i], header[i+1:]
		if !validPort(port) {
			return "", false
		}
	}
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, notHost) {
		return "", false
	}
	return strings.ToLower(host), true
}

func validPort(s string) bool {
	return s != "" && len(s) <= 5 && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

func notHost(r rune) bool {
	return !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", r)
}
