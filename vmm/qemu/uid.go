package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Each QEMU process runs as a uid of its own out of a range that no
// distribution hands out to users, so that two of them share nothing.
const (
	uidFirst = 0x43_000000
	uidCount = 4096
	uidDir   = "/run/custody/uid"
)

// uidLease holds one uid. The lock lives as long as the file is open, hence no
// longer than this process.
type uidLease struct {
	uid  int
	lock *os.File
}

func leaseUID() (*uidLease, error) {
	if err := os.MkdirAll(uidDir, 0o700); err != nil {
		return nil, err
	}
	for i := range uidCount {
		uid := uidFirst + i
		f, err := os.OpenFile(filepath.Join(uidDir, strconv.Itoa(uid)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lease a uid: %w", err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &uidLease{uid: uid, lock: f}, nil
		}
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lease a uid: %w", err)
		}
	}
	return nil, fmt.Errorf("all %d uids for VMs are in use on this host", uidCount)
}

func (l *uidLease) release() { l.lock.Close() }
