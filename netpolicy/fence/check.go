package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/internal/bootid"
	"github.com/custody-project/custody/internal/regular"
)

// checkedFile contains the boot and the program for which Check succeeded.
const checkedFile = "/run/custody/network"

// verifierLog is the file below $CUSTODY_HOME with the kernel verifier's complete log.
const verifierLog = "verifier.log"

// CheckError reports why this host cannot make a sandbox's network.
type CheckError struct {
	err error
	log string // file with the verifier's log; empty: none
}

// Error implements error, in one line.
func (e *CheckError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *CheckError) Unwrap() error { return e.err }

// Hint returns how to fix the problem.
func (e *CheckError) Hint() string {
	var k *KernelError
	switch {
	case !errors.As(e.err, &k):
		return "`custody doctor` checks the host; docs/operations.md lists what it must have"
	case e.log != "":
		return k.Hint() + "; the verifier's log is " + e.log
	}
	return k.Hint()
}

// Check makes a sandbox's network and removes it again. If the kernel rejects a program, Check writes the verifier's log
// below home, which is $CUSTODY_HOME.
func Check(ctx context.Context, home string) error {
	f, err := New(ctx, Options{})
	if err == nil {
		_, err = f.Denials() // the programs must be loaded and attached for this
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		return nil
	}
	failed := &CheckError{err: err}
	var k *KernelError
	if errors.As(err, &k) && k.Log != "" {
		path := filepath.Join(home, verifierLog)
		if regular.WriteFile(path, []byte(k.Log), 0o600) == nil {
			failed.log = path
		}
	}
	return failed
}

// CheckOnce calls Check, unless it has succeeded since the host's boot with this version of Custody.
func CheckOnce(ctx context.Context, home string) error {
	now, err := checkKey()
	if err != nil {
		return err
	}
	if seen, err := regular.ReadFile(checkedFile); err == nil && string(seen) == now {
		return nil
	}
	if err := Check(ctx, home); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(checkedFile), 0o700); err != nil {
		return err
	}
	// A truncated file causes another check.
	if err := regular.WriteFile(checkedFile, []byte(now), 0o600); err != nil {
		return fmt.Errorf("store the result of the network check: %w", err)
	}
	return nil
}

func checkKey() (string, error) {
	boot, err := bootid.Current()
	if err != nil {
		return "", err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	return fmt.Sprintln(boot, self.Size(), self.ModTime().UnixNano()), nil
}
