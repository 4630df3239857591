package guest

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/channel"
)

// initReserve is the memory that cells cannot take from init and its sensors.
const initReserve = 96 << 20

// leastMemory is the minimum memory of cells, however small the VM is.
const leastMemory = 64 << 20

// renew replaces the state that all restores of a snapshot would otherwise share.
func renew(id channel.Identity, random int) error {
	if err := setClock(id.Time); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := stir(random, id.Entropy); err != nil {
		return fmt.Errorf("renew the randomness: %w", err)
	}
	return nil
}

func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// entropyForKernel is how much of an identity's 64 bytes of entropy the kernel gets; the rest is the sensor's cookie.
const entropyForKernel = 56

// stir credits the entropy to the kernel's generator and makes it reseed
// immediately. Otherwise every restore of a snapshot would generate the same numbers.
func stir(random int, entropy []byte) error {
	if len(entropy) != entropyForKernel+8 {
		return fmt.Errorf("%d bytes of entropy, expected %d", len(entropy), entropyForKernel+8)
	}
	entropy = entropy[:entropyForKernel]
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(entropy))) // struct rand_pool_info of random(4)
	info = binary.NativeEndian.AppendUint32(info, uint32(len(entropy)))
	info = append(info, entropy...)
	if err := ioctl(random, unix.RNDADDENTROPY, unsafe.Pointer(&info[0])); err != nil {
		return err
	}
	return ioctl(random, unix.RNDRESEEDCRNG, nil)
}

func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// machineMemory is how much memory the VM has, in bytes.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
