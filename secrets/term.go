package secrets

import (
	"fmt"
	"time"
)

// slack is how far beyond TTL a broker may set a grant's expiry, to allow for the latency of the request.
const slack = 2 * time.Second

// term bounds the lifetime of a lease's credentials.
type term struct {
	limit moment // no renewal extends beyond it
	now   func() moment
}

// left returns how long the credentials can still be renewed.
func (t term) left() time.Duration { return t.limit.sub(t.now()) }

// short returns an error for grants whose lifetime is too long.
func (t term) short(expires time.Time) error {
	most := min(TTL, t.left())
	if left := time.Until(expires); left > most+slack {
		return fmt.Errorf("the broker gave credentials for %s, which may live for %s", left.Round(time.Second), most.Round(time.Second))
	}
	return nil
}

// reach returns until when a grant is valid that was requested at asked: TTL counts from then, because the response may
// take long.
func (t term) reach(asked moment, expires time.Time) moment {
	return earlier(asked.add(min(TTL, expires.Sub(asked.awake))), t.limit)
}

// doubt returns until when a grant may be alive that was requested before now.
func (t term) doubt() moment {
	return earlier(t.now().add(TTL), t.limit.add(slack))
}
