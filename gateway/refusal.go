package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// refusal is why a connection or a request is denied or failed. The reason is recorded and sent to the guest, as an HTTP
// response or a TLS alert.
type refusal struct {
	status int   // of the HTTP response
	alert  alert // of TLS
	reason string
}

// Error returns the reason.
func (r *refusal) Error() string { return r.reason }

// malformed returns a refusal of ambiguous or invalid data.
func malformed(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, alertDecodeError, fmt.Sprintf(format, args...)}
}

// denied returns a refusal by the policy.
func denied(format string, args ...any) *refusal {
	return &refusal{http.StatusForbidden, alertAccessDenied, fmt.Sprintf(format, args...)}
}

// misnamed returns a refusal of a name that is not the destination's. It does not use 421 (Misdirected Request), because
// clients retry after that.
func misnamed(format string, args ...any) *refusal {
	return &refusal{http.StatusForbidden, alertUnrecognizedName, fmt.Sprintf(format, args...)}
}

// failed returns a refusal because of a failure beyond the gateway.
func failed(format string, args ...any) *refusal {
	return &refusal{http.StatusBadGateway, alertInternalError, fmt.Sprintf(format, args...)}
}

// beyond reports whether the request was allowed, and failed on its way or at the host.
func (r *refusal) beyond() bool {
	return r.status == http.StatusBadGateway || r.status == http.StatusGatewayTimeout
}

// word returns the value of the response's "error" field.
func (r *refusal) word() string {
	switch {
	case r.status == http.StatusForbidden:
		return "denied by policy"
	case r.status >= 500:
		return "not carried"
	}
	return "request refused"
}

// sayAlert ends a guest's connection with a TLS alert, and waits a little until the guest has read it: a reset would
// discard it.
func sayAlert(guest *net.TCPConn, a alert) {
	_ = guest.SetDeadline(time.Now().Add(time.Second))
	_, _ = guest.Write(a.record()) // the refusal is recorded; the alert is optional
	linger(guest)
}

// linger closes the gateway's side of a guest's connection and discards what the guest still sends, for at most a second
// and a quarter of a MiB, so that the guest can read the last data.
func linger(guest *net.TCPConn) {
	_ = guest.SetReadDeadline(time.Now().Add(time.Second))
	if guest.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(guest, 256<<10))
	}
}
