package secrets

import (
	"errors"

	"github.com/custody-project/custody/audit"
)

// ErrLost is wrapped by the error of Grant.Renew if the broker has reported that the grant has ended, so that retries
// cannot succeed.
var ErrLost = errors.New("the broker no longer has the grant")

// Expired reports whether err, of a lease, means that its credentials expired or that the broker lost them.
func Expired(err error) bool { return is(err, expired) }

// Anomalous reports whether err, of a lease, means that its credentials were revoked because one of them occurred out of
// scope.
func Anomalous(err error) bool { return is(err, anomalous) }

func is(err error, w why) bool {
	var o *over
	return errors.As(err, &o) && o.why == w
}

type why int

const (
	ended     why = iota // End
	expired              // no renewal in time
	anomalous            // a secret occurred out of scope
	revoked              // RevokeAll, Close
)

// over is why a lease's credentials have ended.
type over struct {
	why    why
	reason string // for the record
	guest  string // the text for the guest, without information on the broker
}

func (o *over) Error() string { return o.reason }

func errEnded(reason string) *over {
	return &over{ended, reason, "the step has ended"}
}

func errExpired(reason string) *over {
	return &over{expired, reason, "the step's credentials have expired"}
}

func errRevoked(reason string) *over {
	return &over{revoked, reason, "revoked because " + reason}
}

func errAnomalous(rule audit.Rule, detail string) *over {
	return &over{anomalous, string(rule) + ": " + detail, "revoked because of " + string(rule)}
}
