package hostd

import (
	"context"
	"fmt"
	"os"

	"github.com/custody-project/custody/pool"
	"github.com/custody-project/custody/privsep"
)

// Meters counts what the pool does, and workers that were killed; see hostmetrics.Meters.
type Meters interface {
	// Pool sets the meter of a pool, whose numbers stats returns.
	Pool(opt *pool.Options, stats func() pool.Stats)
	// Silent counts a worker that was killed because it gave no sign of life.
	Silent()
	// PoolText returns these metrics, for Client.Metrics.
	PoolText() ([]byte, error)
}

// callMetrics returns the metrics of the pool in a file.
const callMetrics = "metrics"

// metricsHandler returns the handler of callMetrics.
func metricsHandler(m Meters) privsep.Handler {
	return privsep.Handle(func(context.Context, none) (any, []*os.File, error) {
		text, err := m.PoolText()
		if err != nil {
			return nil, nil, err
		}
		f, err := privsep.Memory("metrics", text)
		if err != nil {
			return nil, nil, err
		}
		return none{}, []*os.File{f}, nil
	})
}

// Metrics returns the metrics of the Server's pool in the text format of Prometheus; nothing if it has no pool.
func (c *Client) Metrics(ctx context.Context) (text []byte, err error) {
	conn, err := c.keyConn(ctx)
	if err != nil {
		return nil, err
	}
	files, err := conn.Call(ctx, callMetrics, none{}, nil)
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		closeAll(files)
		return nil, fmt.Errorf("custody host returned %d files in place of one", len(files))
	}
	err = privsep.FromMemory(files[0], &text)
	return text, err
}
