package channel

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"
)

// TestCPU: the guest's answer to a ping has the processor time of its cells, if it knows it.
func TestCPU(t *testing.T) {
	s := NewServer(localRunner{}, nil, nil)
	if r := s.alive(); r.CPU != 0 || !r.Done {
		t.Errorf("%+v", r)
	}
	s.CPU = func() time.Duration { return 1500 * time.Microsecond }
	if r := s.alive(); r.CPU != 1500 {
		t.Errorf("%+v", r)
	}
}

// FuzzCPU: an answer to a ping is a time that is not negative, or an error.
func FuzzCPU(f *testing.F) {
	for _, cpu := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 / 1000, math.MaxInt64/1000 + 1} {
		f.Add(frameOf(report{CPU: cpu, Done: true}))
	}
	f.Add([]byte("\x00\x00\x00\x0b{\"cpu\":1e3}"))
	f.Add([]byte("\x00\x00\x00\x0d{\"cpu\":1e300}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r report
		if readFrame(bytes.NewReader(b), &r, maxReport) != nil {
			return
		}
		cpu, err := r.cpu()
		if err != nil && !errors.Is(err, ErrHostile) || err == nil && (cpu < 0 || cpu.Microseconds() != r.CPU) {
			t.Errorf("%v, %v of %d", cpu, err, r.CPU)
		}
	})
}
