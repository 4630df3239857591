package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/audit/proof"
	"github.com/custody-project/custody/audit/wal"
)

// verify measures the check of a run's directory against sha256sum over the
// segments in it. Both read from memory: it is the second reading that counts.
func (r *report) verify(ctx context.Context, dir string) error {
	sealer, public, err := newSealer()
	if err != nil {
		return err
	}
	trusted, err := note.NewVerifier(public)
	if err != nil {
		return err
	}
	run := filepath.Join(dir, "r-loadtest")
	if err := writeLog(ctx, run, sealer, r.events); err != nil {
		return err
	}
	segments, err := wal.Segments(run)
	if err != nil {
		return err
	}
	size, err := sizeOf(run)
	if err != nil {
		return err
	}
	var ours, bare time.Duration
	for range 3 {
		began := time.Now()
		if err := verifyDir(ctx, run, note.VerifierList(trusted)); err != nil {
			return err
		}
		ours = least(ours, time.Since(began))
		began = time.Now()
		if err := exec.CommandContext(ctx, "sha256sum", segments...).Run(); err != nil {
			return fmt.Errorf("sha256sum: %w", err)
		}
		bare = least(bare, time.Since(began))
	}
	mb := func(d time.Duration) string { return fmt.Sprintf("%.0f MB/s", float64(size)/1e6/d.Seconds()) }
	r.add("verify of a run, best of 3", mb(ours), "sha256sum: "+mb(bare), ratio(ours, bare))
	return nil
}

func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func verifyDir(ctx context.Context, dir string, trusted note.Verifiers) error {
	e, err := proof.OpenDir(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	_, err = proof.Verify(ctx, e, proof.Trust{Keys: trusted})
	return err
}

// writeLog writes a closed run.
func writeLog(ctx context.Context, dir string, sealer wal.Sealer, events int) error {
	red, err := newRedactor()
	if err != nil {
		return err
	}
	l, err := wal.Create(dir, wal.Options{Run: filepath.Base(dir), Sealer: sealer})
	if err != nil {
		return err
	}
	if err := post(ctx, audit.NewRecorder(l, red), events); err != nil {
		return err
	}
	return l.Close(ctx, wal.Sealed)
}
