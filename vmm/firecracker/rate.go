package firecracker

import (
	"context"
)

// nicID is Firecracker's name of the network interface.
const nicID = "net"

// Parts of the API's requests that limit bytes per second. A machine without a limit has none of them.
type (
	rated struct {
		Limiter *rateLimiter `json:"rate_limiter,omitempty"`
	}
	ratedNIC struct {
		Received *rateLimiter `json:"rx_rate_limiter,omitempty"`
		Sent     *rateLimiter `json:"tx_rate_limiter,omitempty"`
	}
	rateLimiter struct {
		Bandwidth tokenBucket `json:"bandwidth"`
	}
	tokenBucket struct {
		Size   int64 `json:"size"`        // bytes
		Refill int64 `json:"refill_time"` // ms in which an empty bucket fills
	}
)

// refill is how long an empty bucket takes to fill, in ms: the longest burst.
const refill = 100

// limits are those of each drive and of the network interface.
func limits(s shape) (disks rated, nic ratedNIC) {
	return rated{limiter(s.DiskRate)}, ratedNIC{limiter(s.NetRate), limiter(s.NetRate)}
}

func limiter(bytesPerSecond int64) *rateLimiter {
	if bytesPerSecond == 0 {
		return nil
	}
	return &rateLimiter{tokenBucket{bytesPerSecond * refill / 1000, refill}}
}

// setLimits sets the limits of a restored machine; a snapshot has none.
func setLimits(ctx context.Context, a *api, s shape) error {
	type change struct {
		Drive string `json:"drive_id,omitempty"`
		NIC   string `json:"iface_id,omitempty"`
		rated
		ratedNIC
	}
	disks, nic := limits(s)
	if s.DiskRate > 0 {
		drives := []string{rootFile}
		if s.HasScratch {
			drives = append(drives, scratchFile)
		}
		for _, id := range drives {
			if err := a.patch(ctx, "/drives/"+id, change{Drive: id, rated: disks}); err != nil {
				return err
			}
		}
	}
	if s.NetRate > 0 {
		return a.patch(ctx, "/network-interfaces/"+nicID, change{NIC: nicID, ratedNIC: nic})
	}
	return nil
}
