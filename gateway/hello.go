package gateway

import (
	"io"
	"strings"

	"github.com/custody-project/custody/netpolicy"
)

// Limits of a ClientHello. One with two post-quantum key shares has about 4 KiB.
const (
	maxHello    = 32 << 10 // of the message
	maxHelloRaw = 64 << 10 // with the headers of its records, of which there can be many
)

// Handshake types and extensions that the gateway parses.
const (
	helloType       = 1
	extServerName   = 0      // RFC 6066, section 3
	extECH          = 0xfe0d // RFC 9849: encrypted_client_hello
	extECHOuter     = 0xfd00 // RFC 9849: ech_outer_extensions, in an inner hello only
	extESNI         = 0xffce // encrypted_server_name, the predecessor of ECH
	hostName        = 0      // the only type of server name
	randomSize      = 32
	maxSessionID    = 32
	newestLegacyVer = 0x0303 // TLS 1.2; later versions are in an extension
	oldestLegacyVer = 0x0301
)

// hello has the fields of a ClientHello that the gateway uses.
type hello struct {
	name string // the server name as received; empty if there is none
	ech  bool   // it contains an encrypted hello, or an extension that looks like one
}

// readHello reads a ClientHello from r, from as many records and segments as necessary and not beyond them, and returns
// it with the unchanged records. raw has the bytes that were read before.
func readHello(r io.Reader, raw []byte) (hello, []byte, error) {
	message, raw, err := readHandshake(r, raw)
	if err != nil {
		return hello{}, raw, err
	}
	h, err := parseHello(message)
	return h, raw, err
}

// readHandshake reads one handshake message that ends with its record, as a ClientHello does: the client can send
// nothing after it before the server responds.
func readHandshake(r io.Reader, raw []byte) (message, records []byte, err error) {
	for at := 0; ; {
		raw, err = readRecord(r, raw, at, recordPayload)
		if err != nil {
			return nil, raw, err
		}
		payload := raw[at+recordHeader:]
		switch {
		case raw[at] != typeHandshake:
			return nil, raw, malformed("a TLS record of type %d within the ClientHello", raw[at])
		case len(payload) == 0:
			return nil, raw, malformed("an empty TLS record within the ClientHello")
		case len(raw) > maxHelloRaw:
			return nil, raw, malformed("a ClientHello in records of more than %d bytes", maxHelloRaw)
		}
		message = append(message, payload...)
		at = len(raw)
		if whole, err := handshakeWhole(message, helloType, maxHello); whole || err != nil {
			return message, raw, err
		}
	}
}

// handshakeWhole reports whether a message of the given type is complete.
func handshakeWhole(message []byte, kind byte, longest int) (bool, error) {
	if message[0] != kind {
		return false, malformed("a TLS handshake message of type %d, not %d", message[0], kind)
	}
	w := wire(message[1:])
	size, ok := w.number(3)
	switch {
	case !ok:
		return false, nil
	case size > longest:
		return false, malformed("a TLS handshake message of %d bytes, at most %d", size, longest)
	case len(w) > size:
		return false, malformed("a TLS handshake message with further bytes after it")
	}
	return len(w) == size, nil
}

// parseHello parses a complete ClientHello message (RFC 8446, section 4.1.2) strictly: every length must be exact and no
// extension may be repeated.
func parseHello(message []byte) (hello, error) {
	w := wire(message)
	kind, ok1 := w.number(1)
	body, ok2 := w.vector(3)
	if !ok1 || !ok2 || len(w) > 0 || kind != helloType {
		return hello{}, malformed("not a ClientHello")
	}
	version, ok1 := body.number(2)
	_, ok2 = body.take(randomSize)
	session, ok3 := body.vector(1)
	suites, ok4 := body.vector(2)
	methods, ok5 := body.vector(1)
	switch {
	case !ok1 || !ok2 || !ok3 || !ok4 || !ok5:
		return hello{}, malformed("the ClientHello ends early")
	case version < oldestLegacyVer || version > newestLegacyVer:
		return hello{}, malformed("a ClientHello of version %#04x", version)
	case len(session) > maxSessionID:
		return hello{}, malformed("a session id of %d bytes", len(session))
	case len(suites) < 2 || len(suites)%2 != 0:
		return hello{}, malformed("a list of cipher suites of %d bytes", len(suites))
	case len(methods) == 0:
		return hello{}, malformed("no compression method")
	case len(body) == 0: // allowed before TLS 1.3: no extensions
		return hello{}, nil
	}
	extensions, ok := body.vector(2)
	if !ok || len(body) > 0 {
		return hello{}, malformed("the extensions' length is wrong")
	}
	return parseExtensions(extensions)
}

func parseExtensions(w wire) (hello, error) {
	var h hello
	seen := map[int]bool{}
	for len(w) > 0 {
		kind, ok1 := w.number(2)
		data, ok2 := w.vector(2)
		if !ok1 || !ok2 {
			return hello{}, malformed("an extension ends early")
		}
		if seen[kind] {
			return hello{}, malformed("the extension %#04x is repeated", kind)
		}
		seen[kind] = true
		switch kind {
		case extECH, extESNI, extECHOuter:
			h.ech = true
		case extServerName:
			name, err := parseServerName(data)
			if err != nil {
				return hello{}, err
			}
			h.name = name
		}
	}
	return h, nil
}

// parseServerName parses server_name (RFC 6066, section 3). It rejects lists with several names or with another type
// than host_name, which no client sends and servers would treat differently.
func parseServerName(data wire) (string, error) {
	list, ok := data.vector(2)
	if !ok || len(data) > 0 {
		return "", malformed("the server name's length is wrong")
	}
	kind, ok1 := list.number(1)
	name, ok2 := list.vector(2)
	switch {
	case !ok1 || !ok2 || len(name) == 0:
		return "", malformed("the server name is empty or ends early")
	case len(list) > 0:
		return "", malformed("more than one server name")
	case kind != hostName:
		return "", malformed("a server name of type %d", kind)
	}
	return string(name), nil
}

// check reports whether the hello is for name, which must be in normal form. Letters may be of either case; everything
// else must be equal, including a final dot.
func (h hello) check(name string, opened bool) *refusal {
	switch {
	case h.name == "":
		return misnamed("the client names no server (SNI), so it cannot be checked that it wants %s", name)
	case !sameName(h.name, name):
		return misnamed("the client asks for another server (SNI) than the destination's name")
	case h.ech && !opened:
		return denied("the client sends an encrypted ClientHello, or a dummy of one (GREASE): the encrypted name is not known. " +
			"Disable it in the client, or give the rule http, which opens TLS")
	}
	return nil
}

// sameName compares a received host name with one in normal form.
func sameName(came, name string) bool {
	normal, ok := netpolicy.Name(came)
	return ok && normal == name && !strings.HasSuffix(came, ".")
}
