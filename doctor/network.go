package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/custody-project/custody/internal/bootid"
	"github.com/custody-project/custody/internal/regular"
	"github.com/custody-project/custody/netpolicy/fence"
)

// networkFile says for which boot and which program a sandbox's network was seen to work.
const networkFile = "/run/custody/network"

// verifierLog is the file below $CUSTODY_HOME with the whole reason why the kernel rejected a program.
const verifierLog = "verifier.log"

// NetworkError reports why this host cannot make a sandbox's network.
type NetworkError struct {
	err error
	log string // file with the verifier's log; empty: there is none
}

// Error implements error, in one line.
func (e *NetworkError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *NetworkError) Unwrap() error { return e.err }

// Hint returns what to do about it.
func (e *NetworkError) Hint() string {
	var k *fence.KernelError
	switch {
	case !errors.As(e.err, &k):
		return "`custody doctor` checks the host; docs/operations.md lists what it must have"
	case e.log != "":
		return k.Hint() + "; the verifier's log is " + e.log
	}
	return k.Hint()
}

// CheckNetwork makes a sandbox's network and removes it again. home is $CUSTODY_HOME, where the
// verifier's log is written if the kernel rejects a program.
func CheckNetwork(ctx context.Context, home string) error {
	f, err := fence.New(ctx, fence.Options{})
	if err == nil {
		_, err = f.Denials() // for which the programs must be loaded and attached
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		return nil
	}
	failed := &NetworkError{err: err}
	var k *fence.KernelError
	if errors.As(err, &k) && k.Log != "" {
		path := filepath.Join(home, verifierLog)
		if regular.WriteFile(path, []byte(k.Log), 0o600) == nil {
			failed.log = path
		}
	}
	return failed
}

// NeedNetwork is CheckNetwork, but once for each boot of the host and version of Custody.
func NeedNetwork(ctx context.Context, home string) error {
	now, err := networkKey()
	if err != nil {
		return err
	}
	if seen, err := regular.ReadFile(networkFile); err == nil && string(seen) == now {
		return nil
	}
	if err := CheckNetwork(ctx, home); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(networkFile), 0o700); err != nil {
		return err
	}
	// A file that is cut short leads to another check.
	if err := regular.WriteFile(networkFile, []byte(now), 0o600); err != nil {
		return fmt.Errorf("store that the network works: %w", err)
	}
	return nil
}

func networkKey() (string, error) {
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
