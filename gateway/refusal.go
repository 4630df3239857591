package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// refusal is why a connection or a request is not served. The reason is recorded and sent to the guest, as HTTP or as
// an alert of TLS.
type refusal struct {
	status int   // of the HTTP answer
	alert  alert // of TLS
	reason string
}

// Error returns the reason.
func (r *refusal) Error() string { return r.reason }

// malformed is for what cannot be read in one way only.
func malformed(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, alertDecodeError, fmt.Sprintf(format, args...)}
}

// denied is for what the policy does not allow.
func denied(format string, args ...any) *refusal {
	return &refusal{http.StatusForbidden, alertAccessDenied, fmt.Sprintf(format, args...)}
}

// misnamed is for a name that is not the destination's. Not 421 (Misdirected
// Request): that asks the client to try again.
func misnamed(format string, args ...any) *refusal {
	return &refusal{http.StatusForbidden, alertUnrecognizedName, fmt.Sprintf(format, args...)}
}

// failed is for what went wrong beyond the gateway.
func failed(format string, args ...any) *refusal {
	return &refusal{http.StatusBadGateway, alertInternalError, fmt.Sprintf(format, args...)}
}

// beyond reports whether the request was let through, and failed on its way or at the host.
func (r *refusal) beyond() bool {
	return r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout
}

// word returns the kind of refusal for the answer's "error" field.
func (r *refusal) word() string {
	switch {
	case r.status == http.StatusForbidden:
		return "denied by policy"
	case r.status >= 500:
		return "not carried"
	}
	return "request refused"
}

// sayAlert ends a guest's connection with a TLS alert, and waits a little for the guest to
// have read it: a reset would overtake it.
func sayAlert(guest *net.TCPConn, a alert) {
	_ = guest.SetDeadline(time.Now().Add(time.Second))
	_, _ = guest.Write(a.record()) // the refusal is in the record; telling it is a courtesy
	linger(guest)
}

// linger ends our side of a guest's connection and drops what the guest still sends, for a second and
// a quarter of a MiB at most, so that it can read our last words.
func linger(guest *net.TCPConn) {
	_ = guest.SetReadDeadline(time.Now().Add(time.Second))
	if guest.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(guest, 256<<10))
	}
}
