package wal_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
)

// TestShortWrite makes the kernel write only a part of the bytes: no file may grow beyond a limit (RLIMIT_FSIZE), which
// is lifted when the log stalls, or the process is killed at that point, with a partial frame on the disk.
func TestShortWrite(t *testing.T) {
	stride := 67
	if os.Getenv("CUSTODY_ROUNDS") != "" {
		stride = 1
	}
	k, private := sweepKey(t)
	for _, do := range []string{"short", "short-killed"} {
		stalls := 0
		for limit := 1; limit < segmentBytes+60; limit += stride {
			under(t, fmt.Sprintf("%s, files of at most %d bytes", do, limit), func() {
				dir := runDir(t)
				t.Setenv("CUSTODY_SWEEP_LIMIT", strconv.Itoa(limit))
				o := task{do, dir, private}.run(t)
				if o.killed != (do == "short-killed") && limit < segmentBytes/2 {
					t.Errorf("killed: %v", o.killed)
				}
				wantRecord(t, k, dir, o)
				stalls++
			})
		}
		t.Logf("%s: %d runs", do, stalls)
	}
}

// sweepShort writes under a limit.
func sweepShort(dir string, kill bool, th *thread) error {
	limit, err := strconv.Atoi(os.Getenv("CUSTODY_SWEEP_LIMIT"))
	if err != nil {
		return err
	}
	signal.Ignore(unix.SIGXFSZ) // the write fails with EFBIG
	o := sweepOptions(th)
	o.OnStall = func(error) {
		if kill {
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		setLimit(unix.RLIM_INFINITY)
	}
	l, err := wal.Create(dir, o)
	if err != nil {
		return err
	}
	if err := setLimit(uint64(limit)); err != nil {
		return err
	}
	for id := range 6 {
		if err := sweepBurst(context.Background(), l, id*2, 2); err != nil {
			return err
		}
	}
	return l.Close(context.Background(), wal.Sealed)
}

func setLimit(n uint64) error {
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY})
}
