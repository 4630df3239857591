package firecracker

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/custody-project/custody/vmm"
)

// TestLimitOfRestored: a restored machine gets its limits before it runs; without limits nothing is changed.
func TestLimitOfRestored(t *testing.T) {
	const bucket = `{"bandwidth":{"size":209715,"refill_time":100}}`
	for _, c := range []struct {
		disk, network int64
		want          []string
	}{
		{0, 0, nil},
		{2 << 20, 0, []string{
			`/drives/root {"drive_id":"root","rate_limiter":` + bucket + `}`, `/drives/scratch {"drive_id":"scratch","rate_limiter":` + bucket + `}`,
		}},
		{0, 2 << 20, []string{`/network-interfaces/net {"iface_id":"net","rx_rate_limiter":` + bucket + `,"tx_rate_limiter":` + bucket + `}`}},
	} {
		d, m := player(t, "none")
		m.DiskRate, m.NetworkRate = c.disk, c.network
		var got []string
		changes := func(r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = append(got, fmt.Sprintf("%s %s", r.URL.Path, b))
		}
		if err := limitThrough(t, m, changes); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("the changes are\n%q, want\n%q", got, c.want)
		}
		v, err := d.Start(t.Context(), m) // the player accepts all
		ok(t, err)
		ok(t, v.Destroy(t.Context()))
	}
}

// limitThrough sets the limits of a machine with an API that passes each request to seen.
func limitThrough(t *testing.T, m vmm.Machine, seen func(*http.Request)) error {
	t.Helper()
	a := &api{limit: apiTimeout, http: &http.Client{Transport: transport(func(r *http.Request) { seen(r) })}}
	return setLimits(t.Context(), a, shapeOf(m))
}

// transport answers each request with success.
type transport func(*http.Request)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t(r)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}
