package channel

import (
	"context"
	"math"
	"time"
)

// Ping returns when the guest has answered, hence when it runs and its init is responsive. cpu is the processor time that the processes
// of all cells have used, as the guest reports it, 0 if the guest does not.
func (c *Client) Ping(ctx context.Context) (cpu time.Duration, err error) {
	r, err := c.ask(ctx, hello{Kind: streamPing})
	if err == nil {
		if cpu, err = r.cpu(); err != nil {
			err = c.failed(ctx, "ping", err)
		}
	}
	return cpu, err
}

// cpu returns the processor time of an answer to a ping.
func (r report) cpu() (time.Duration, error) {
	if r.CPU < 0 || r.CPU > math.MaxInt64/int64(time.Microsecond) {
		return 0, hostile("processor time of %d microseconds", r.CPU)
	}
	return time.Duration(r.CPU) * time.Microsecond, nil
}

// alive answers a ping.
func (s *Server) alive() report {
	r := report{Done: true}
	if s.CPU != nil {
		r.CPU = s.CPU().Microseconds()
	}
	return r
}
