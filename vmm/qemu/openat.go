package qemu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// An openHandler handles the openat calls of a process that open a file for reading and writing. QEMU
// opens a guest's memory file that way even if it maps it privately; with such a descriptor a hostile QEMU
// could change the template that other sandboxes start from. A seccomp filter therefore suspends these
// calls and notifies the handler (seccomp_unotify(2)). For a path in files, the handler installs its own
// descriptor in the process as the call's result: a read-only one when a snapshot is restored. For all
// other paths it lets the kernel continue the call.
//
// To continue a call does not grant access: the process could replace the path after the
// check, but the jail's mounts and uid limit every open.
type openHandler struct {
	listener int
	files    map[string]*os.File
	wg       sync.WaitGroup
	once     sync.Once
	stop     [2]int // a pipe that ends serve
}

// newOpenHandler installs the filter on the calling thread, whose children inherit
// it, and handles its notifications until close.
func newOpenHandler(files map[string]*os.File) (*openHandler, error) {
	h := &openHandler{files: files}
	if err := unix.Pipe2(h.stop[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	fd, err := installFilter()
	if err != nil {
		unix.Close(h.stop[0])
		unix.Close(h.stop[1])
		return nil, err
	}
	h.listener = fd
	h.wg.Add(1)
	go h.serve()
	return h, nil
}

// close ends the handler. After that, opening a file for reading and writing fails with ENOSYS.
func (h *openHandler) close() {
	h.once.Do(func() {
		unix.Write(h.stop[1], []byte{0})
		h.wg.Wait()
		unix.Close(h.listener)
		unix.Close(h.stop[0])
		unix.Close(h.stop[1])
	})
}

// Offsets into struct seccomp_data (linux/seccomp.h).
const (
	offNr    = 0
	offFlags = 16 + 2*8 // third argument, low half on little endian
)

func installFilter() (int, error) {
	prog, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offNr, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_OPENAT, SkipTrue: 3},
		bpf.LoadAbsolute{Off: offFlags, Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: unix.O_ACCMODE},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.O_RDWR, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF},
	})
	if err != nil {
		return -1, err
	}
	filter := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return -1, fmt.Errorf("install the seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// The structures and requests of linux/seccomp.h.
type notif struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

type notifResp struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

type notifAddFD struct {
	ID         uint64
	Flags      uint32
	SrcFD      uint32
	NewFD      uint32
	NewFDFlags uint32
}

const (
	ioctlNotifRecv  = 0xc0502100
	ioctlNotifSend  = 0xc0182101
	ioctlNotifAddFD = 0x40182103
	respContinue    = 1
)

func (h *openHandler) ioctl(req uintptr, arg unsafe.Pointer) (int, error) {
	r, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(h.listener), req, uintptr(arg))
	if errno != 0 {
		return -1, errno
	}
	return int(r), nil
}

func (h *openHandler) serve() {
	defer h.wg.Done()
	for {
		fds := []unix.PollFd{{Fd: int32(h.listener), Events: unix.POLLIN}, {Fd: int32(h.stop[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[1].Revents != 0 || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			continue
		}
		var n notif
		if _, err := h.ioctl(ioctlNotifRecv, unsafe.Pointer(&n)); err != nil {
			continue // the process died meanwhile
		}
		h.answer(n)
	}
}

func (h *openHandler) answer(n notif) {
	resp := notifResp{ID: n.ID, Flags: respContinue}
	if f := h.files[readPath(int(n.PID), uintptr(n.Args[1]))]; f != nil {
		add := notifAddFD{ID: n.ID, SrcFD: uint32(f.Fd()), NewFDFlags: unix.O_CLOEXEC}
		fd, err := h.ioctl(ioctlNotifAddFD, unsafe.Pointer(&add))
		resp.Flags, resp.Val = 0, int64(fd)
		if err != nil {
			resp.Val, resp.Error = 0, -int32(unix.EACCES)
		}
	}
	h.ioctl(ioctlNotifSend, unsafe.Pointer(&resp))
}

// readPath reads a C string from another process's memory. It returns "" if that fails.
func readPath(pid int, addr uintptr) string {
	buf := make([]byte, 64)
	local := []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}}
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: addr, Len: len(buf)}}, 0)
	if err != nil {
		return ""
	}
	path, _, found := strings.Cut(string(buf[:n]), "\x00")
	if !found {
		return ""
	}
	return path
}
