package cell

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// DrainPages makes the kernel free every page without a user. Each CPU has a separate batch of the
// pages that it last added to the page cache or to a process (lru_add in
// Linux's mm/swap.c), with references to them: a page of a process that has ended on
// another CPU is not freed, and so not zeroed, until that batch is drained. A CPU drains
// its batch when it frees memory of a process, so DrainPages does that on each.
func DrainPages() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("list the CPUs: %w", err)
	}
	defer unix.SchedSetaffinity(0, &all)
	var errs []error
	for cpu, left := 0, all.Count(); left > 0; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		left--
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			errs = append(errs, fmt.Errorf("move to CPU %d: %w", cpu, err))
			continue
		}
		errs = append(errs, freePage())
	}
	return errors.Join(errs...)
}

// freePage frees a page of this process that was in use.
func freePage() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("take a page: %w", err)
	}
	page[0] = 1
	return unix.Munmap(page)
}
