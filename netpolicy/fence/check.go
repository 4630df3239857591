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

// verifierLog is the file below $CUSTODY_HOME with the whole reason why the kernel rejected a program.
const verifierLog = "verifier.log"

// CheckError reports why this host cannot make a sandbox's network.
type CheckError struct {
	err error
	log string // file with the verifier's log; empty: there is none
}

// Error implements error, in one line.
func (e *CheckError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *CheckError) Unwrap() error { return e.err }

// Hint returns what to do about it.
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

// Check makes a sandbox's network and removes it again. home is $CUSTODY_HOME, where the
// verifier's log is written if the kernel rejects a program.
func Check(ctx context.Context, home string) error {
	f, err := New(ctx, Options{})
	if err == nil {
		_, err = f.Denials() // for which the programs must be loaded and attached
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

// CheckOnce calls Check unless it succeeded since the host was booted, with this version of Custody.
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
	// A file that is cut short leads to another check.
	if err := regular.WriteFile(checkedFile, []byte(now), 0o600); err != nil {
		return fmt.Errorf("store that the network works: %w", err)
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
