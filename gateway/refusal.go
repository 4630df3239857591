package gateway

import (
	"fmt"
	"net/http"
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
