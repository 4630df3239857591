package secrets

import (
	"errors"

	"github.com/custody-project/custody/audit"
)

// ErrLost is wrapped by Grant.Renew when the broker has answered that the grant is not
// alive any more, so that asking again is of no use.
var ErrLost = errors.New("the broker does not know the grant any more")

// Expired reports whether err, of a lease, means that its credentials ran out or that the broker lost them.
func Expired(err error) bool { return is(err, expired) }

// Anomalous reports whether err, of a lease, means that its credentials were revoked because one of them occurred where
// it does not belong.
func Anomalous(err error) bool { return is(err, anomalous) }

func is(err error, w why) bool {
	var o *over
	return errors.As(err, &o) && o.why == w
}

type why int

const (
	ended     why = iota // End
	expired              // no renewal in time
	anomalous            // something turned up where it does not belong
	revoked              // RevokeAll, Close
)

// over is why a lease's credentials are dead.
type over struct {
	why    why
	reason string // for the record
	guest  string // what the guest sees: nothing about the broker
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
