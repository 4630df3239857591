package qemu

import (
	"fmt"
	"runtime"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// tscSample is how long the counter is watched; the error is some 10 parts in a million.
const tscSample = 20 * time.Millisecond

// clockArgs tell a guest under software emulation how fast its time stamp
// counter runs, which is the host's. A microvm has no other clock but the PIT
// to find it out with, and on a busy host that fails or never ends.
func clockArgs() string {
	if runtime.GOARCH != "amd64" {
		return ""
	}
	began, first := time.Now(), cpuid.CPU.RTCounter()
	time.Sleep(tscSample)
	ticks, passed := cpuid.CPU.RTCounter()-first, time.Since(began)
	if first == 0 || ticks == 0 {
		return "" // no such counter: the guest has to measure
	}
	return fmt.Sprintf(" tsc_early_khz=%d tsc=reliable no_timer_check", uint64(float64(ticks)/passed.Seconds()/1000))
}
