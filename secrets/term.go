package secrets

import (
	"fmt"
	"time"
)

// slack is how much later than TTL a broker may set a grant's expiry, for the latency of the request.
const slack = 2 * time.Second

// term bounds how long the credentials of a lease live.
type term struct {
	limit moment // no renewal goes beyond it
	now   func() moment
}

// left is how long the credentials can be renewed still.
func (t term) left() time.Duration { return t.limit.sub(t.now()) }

// short refuses what lives longer than it should.
func (t term) short(expires time.Time) error {
	most := min(TTL, t.left())
	if left := time.Until(expires); left > most+slack {
		return fmt.Errorf("the broker gave credentials for %s, which may live for %s", left.Round(time.Second), most.Round(time.Second))
	}
	return nil
}

// reach is until when a grant can be counted on that was asked for at asked: TTL runs from
// then, since the answer took its time.
func (t term) reach(asked moment, expires time.Time) moment {
	return earlier(asked.add(min(TTL, expires.Sub(asked.awake))), t.limit)
}

// doubt is until when a grant can be alive about which the broker was asked until now.
func (t term) doubt() moment {
	return earlier(t.now().add(TTL), t.limit.add(slack))
}
