package fence

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Filters are the packet filters of a namespace: the policy's programs with their maps, and the table by which the gates on
// the devices call them. Using them needs no privilege. The kernel empties the table when no process has it open, so only
// the process of the Fence does.
type Filters struct {
	maps     *programs
	admitted *ebpf.Map // of programs, by slot
	frames   int       // a socket that sends frames to the guest; -1: none
	index    int       // of the guest's device
}

// admit makes a slot's gate pass its packets to the policy's program.
func (f *Filters) admit(s slot) error {
	program := []*ebpf.Program{f.maps.FromGuest, f.maps.ToGuest, f.maps.FromUplink}[s]
	if err := f.admitted.Put(s, program); err != nil {
		return fmt.Errorf("admit the policy's program: %w", err)
	}
	return nil
}

// shut makes every gate drop all packets.
func (f *Filters) shut() {
	var errs []error
	for s := range slots {
		if err := f.admitted.Delete(s); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	if errors.Join(errs...) != nil {
		_ = f.admitted.Close() // which empties the table too
	}
}

// Close closes the filters, which then drop all packets. Any of them may be missing.
func (f *Filters) Close() error {
	var errs []error
	if f.admitted != nil {
		errs = append(errs, f.admitted.Close())
	}
	if f.frames >= 0 {
		errs = append(errs, unix.Close(f.frames))
		f.frames = -1
	}
	if f.maps != nil {
		errs = append(errs, f.maps.close())
	}
	return errors.Join(errs...)
}

// The order in which files returns the filters' descriptors.
const (
	fileAdmitted = iota
	fileFrames
	fileFromGuest
	fileToGuest
	fileFromUplink
	fileMaps
)

// shared returns the maps that a Fence uses, in the order of files.
func (p *programs) shared() []**ebpf.Map {
	return []**ebpf.Map{&p.Events, &p.Flows, &p.Ids, &p.Kept, &p.Permits, &p.Ranges, &p.Variables}
}

// filterFiles is the number of descriptors that files returns.
var filterFiles = fileMaps + len(new(programs).shared())

// files returns duplicates of the filters' descriptors.
func (f *Filters) files() (files []*os.File, err error) {
	p := f.maps
	fds := []int{f.admitted.FD(), f.frames, p.FromGuest.FD(), p.ToGuest.FD(), p.FromUplink.FD()}
	for _, m := range p.shared() {
		fds = append(fds, (*m).FD())
	}
	for _, fd := range fds {
		dup, err := duplicate(fd)
		if err != nil {
			return files, err
		}
		files = append(files, dup)
	}
	return files, nil
}

// openFilters returns the filters with the descriptors of files, which it closes. index is that of the guest's device.
func openFilters(index int, files []*os.File) (f *Filters, err error) {
	f = &Filters{frames: -1, index: index, maps: new(programs)}
	defer func() {
		for _, file := range files {
			file.Close()
		}
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
	if f.admitted, err = mapOf(files[fileAdmitted]); err != nil {
		return f, err
	}
	if f.frames, err = unix.FcntlInt(files[fileFrames].Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return f, err
	}
	if err := unix.SetNonblock(f.frames, true); err != nil {
		return f, err
	}
	for i, p := range []**ebpf.Program{&f.maps.FromGuest, &f.maps.ToGuest, &f.maps.FromUplink} {
		if *p, err = programOf(files[fileFromGuest+i]); err != nil {
			return f, err
		}
	}
	for i, m := range f.maps.shared() {
		if *m, err = mapOf(files[fileMaps+i]); err != nil {
			return f, err
		}
	}
	spec, err := loadPrograms()
	if err != nil {
		return f, err
	}
	return f, f.maps.openVariables(spec)
}

// mapOf returns the map that a file refers to.
func mapOf(f *os.File) (*ebpf.Map, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate a map's descriptor", err)
	}
	return ebpf.NewMapFromFD(fd)
}

// programOf returns the program that a file refers to.
func programOf(f *os.File) (*ebpf.Program, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("duplicate a program's descriptor", err)
	}
	return ebpf.NewProgramFromFD(fd)
}
