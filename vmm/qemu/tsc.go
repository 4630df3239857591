package qemu

import (
	"fmt"
	"runtime"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// tscSample is how long the counter is measured. The error is some 10 parts per million.
const tscSample = 20 * time.Millisecond

// clockOptions returns the kernel options that give an emulated guest the frequency of its time stamp
// counter, which is the host's. Otherwise the guest would measure it with the PIT, the only other clock of a
// microvm; on a busy host that fails or does not end.
func clockOptions() string {
	if runtime.GOARCH != "amd64" {
		return ""
	}
	began, first := time.Now(), cpuid.CPU.RTCounter()
	time.Sleep(tscSample)
	ticks, passed := cpuid.CPU.RTCounter()-first, time.Since(began)
	if first == 0 || ticks == 0 {
		return "" // the host has no such counter: the guest measures it
	}
	return fmt.Sprintf(" tsc_early_khz=%d tsc=reliable no_timer_check", uint64(float64(ticks)/passed.Seconds()/1000))
}
