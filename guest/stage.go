package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
)

// stage is the resources of the cells: the run's disk, the overlay over it and
// the block of cells. It is built before the snapshot. That a restored guest
// finds the disk of its snapshot is the host's promise (vmm.Image.Disk): what
// the kernel remembers of it is written to it later.
type stage struct {
	block      *cell.Block
	trustFiles *trustFiles

	// Opened and asked for before the snapshot, so that a wake need not.
	identity [len(identity)]struct{ fd, size int }
	name     machine // in their contents
	random   int     // descriptor of /dev/urandom
	memory   int64   // of the machine, in bytes
}

func newStage(ctx context.Context, s Sensor) (*stage, error) {
	st := &stage{memory: machineMemory()}
	var err error
	if st.random, err = unix.Open("/dev/urandom", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /dev/urandom: %w", err)
	}
	if err := st.openIdentity(); err != nil {
		return nil, err
	}
	// The disk is thrown away with the run: nothing on it needs to survive a crash.
	if err := unix.Mount(scratchDisk, scratchDir, "ext4", unix.MS_NOATIME|unix.MS_NODEV, "barrier=0,noinit_itable"); err != nil {
		return nil, fmt.Errorf("mount the scratch disk: %w", err)
	}
	if err := st.build(); err != nil {
		return nil, err
	}
	if err := s.Prime(cellDir, leastReadOver); err != nil {
		return nil, err
	}
	// The values of most runs: a wake with the same values has nothing to write.
	if err := st.block.Open(st.limits(channel.Limits{PIDs: usualPIDs}), "localhost", nil); err != nil {
		return nil, err
	}
	if err := rehearse(ctx, st.block); err != nil {
		log.Printf("rehearsal: %v", err) // only the first command will be slower
	}
	if err := s.Prepare(cellDir); err != nil {
		return nil, err
	}
	st.settle()
	return st, nil
}

// The default of a project's limits.pids, and a likely minimum of
// record.files.read_over.
const (
	usualPIDs     = 256
	leastReadOver = 1 << 20
)

// settle waits until background work has ended, so that a snapshot contains an
// idle guest and no wake has to finish the warm-up.
func (st *stage) settle() {
	st.block.AwaitReady()
	warmThreads()
	unix.Sync()
	runtime.GC()
	time.Sleep(rest)
}

// warmThreads makes the runtime start the threads that a session needs concurrently.
func warmThreads() {
	const threads = 8
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			runtime.LockOSThread() // each keeps its thread while it sleeps in the kernel
			defer runtime.UnlockOSThread()
			unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil)
		})
	}
	all.Wait()
}

// rest is longer than the kernel's short background work.
const rest = 150 * time.Millisecond

// limits returns the limits of all cells together: the memory that init and its sensors do not need.
func (st *stage) limits(l channel.Limits) cell.Limits {
	memory := st.memory
	if l.Memory > 0 {
		memory = min(memory, l.Memory)
	}
	return cell.Limits{Memory: max(memory-initReserve, leastMemory), PIDs: l.PIDs}
}

// build mounts the overlay over what is mounted on scratchDir and makes the block.
func (st *stage) build() (err error) {
	if err := layOut(scratchDir); err != nil {
		return fmt.Errorf("prepare the root: %w", err)
	}
	if err := mountRoot(filepath.Join(scratchDir, "upper"), filepath.Join(scratchDir, "work")); err != nil {
		return err
	}
	if st.trustFiles, err = newTrustFiles(); err != nil {
		return err
	}
	st.block, err = cell.New(cell.Config{Root: cellDir, Group: filepath.Join(groupDir, "cells")})
	return err
}

// freeze stops the processes of the cells, and writes what they have written to the disk: it may be all that is kept of them.
func (st *stage) freeze() error {
	if err := st.block.Freeze(); err != nil {
		return err
	}
	unix.Sync()
	return nil
}

// layOut makes the directories of the overlay in a directory. If they are there, they are of a sandbox that was paused with its files only: these stay, but what
// the sandbox has put in the place of Custody's files and directories, such as links to other places, is replaced.
func layOut(scratch string) error {
	disk, err := os.OpenRoot(scratch) // no link leads out of it
	if err != nil {
		return err
	}
	defer disk.Close()
	if err := disk.RemoveAll("work"); err != nil { // the overlay refuses that of a machine that did not unmount it
		return err
	}
	for _, dir := range []string{"upper", "work", "upper/etc", "upper" + cell.DefaultDir} {
		if err := makeDir(disk, dir); err != nil {
			return err
		}
	}
	// Files of the template with these names may be links to anywhere: they are hidden. The agent may
	// put another resolv.conf in its place: no other resolver can be reached.
	files := map[string]string{"resolv.conf": resolvConf}
	for _, name := range identity {
		files[name] = ""
	}
	for name, content := range files {
		name = "upper/etc/" + name
		if err := errors.Join(disk.RemoveAll(name), disk.WriteFile(name, []byte(content), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes a directory, unless it is there. What is there in its place is removed.
func makeDir(disk *os.Root, name string) error {
	info, err := disk.Lstat(name)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = disk.RemoveAll(name)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	return disk.Mkdir(name, 0o755)
}

// identity are the files in /etc that identify a machine. They are
// on a tmpfs and mounted over the overlay's, because rewriting them at each wake is fast there.
var identity = [...]string{"hostname", "hosts", "machine-id"}

// maxIdentity is the size of the tmpfs.
const maxIdentity = 64 << 10

// openIdentity makes the files.
func (st *stage) openIdentity() (err error) {
	for i, name := range identity {
		st.identity[i].fd, err = unix.Open(filepath.Join(identityDir, name), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return fmt.Errorf("make the machine's identity: %w", err)
		}
	}
	return st.writeIdentity(machine{"localhost", strings.Repeat("0", 32)})
}

// assume gives the cells the run's host name, machine-id and certificate, and returns its limits.
func (st *stage) assume(id channel.Identity) (l cell.Limits, err error) {
	if err := unix.Sethostname([]byte(id.Hostname)); err != nil {
		return l, fmt.Errorf("set the host name %q: %w", id.Hostname, err)
	}
	if err := st.writeIdentity(machine{id.Hostname, id.MachineID}); err != nil {
		return l, err
	}
	if len(id.Trust) > 0 {
		if err := st.trustFiles.add(id.Trust); err != nil {
			return l, fmt.Errorf("have the cells trust the host's certificates: %w", err)
		}
	}
	return st.limits(id.Limits), nil
}

func (st *stage) writeIdentity(m machine) error {
	st.name = m
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + m.hosts()
	for i, content := range []string{m.hostname + "\n", hosts, m.id + "\n"} {
		f := &st.identity[i]
		_, err := unix.Pwrite(f.fd, []byte(content), 0)
		if err == nil && len(content) < f.size {
			err = unix.Ftruncate(f.fd, int64(len(content)))
		}
		if err != nil {
			return fmt.Errorf("write the machine's identity: %w", err)
		}
		f.size = len(content)
	}
	return nil
}

// mountRoot mounts the root that the cells change to, with what they all share in it.
func mountRoot(upper, work string) error {
	// xino gives the files of both layers inode numbers that differ, and that stay when a file is written.
	layers := "lowerdir=" + lowerDir + ",upperdir=" + upper + ",workdir=" + work + ",volatile,xino=on"
	if err := unix.Mount("overlay", cellDir, "overlay", unix.MS_NOATIME|unix.MS_NODEV, layers); err != nil {
		return fmt.Errorf("mount %s: %w", cellDir, err)
	}
	return mountShared()
}

// mountShared mounts what all cells share in their root.
func mountShared() error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"sysfs", cellDir + "/sys", "sysfs", quiet | unix.MS_RDONLY},
		{deviceDir, cellDir + "/dev", "", unix.MS_BIND},
		{"", cellDir + "/dev", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, name := range identity {
		if err := unix.Mount(filepath.Join(identityDir, name), filepath.Join(cellDir, "etc", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount /etc/%s: %w", name, err)
		}
	}
	return nil
}

// rehearse runs the whole protocol with itself as a warm-up, before the snapshot is taken.
// This fills caches: pages of programs and libraries, directory
// entries, caches of types, grown stacks. None of them contains a secret or an identity.
func rehearse(ctx context.Context, block *cell.Block) error {
	host, guest := net.Pipe()
	served := make(chan error, 1)
	server := channel.NewServer(block, openWorkspace, nil)
	go func() {
		served <- func() error {
			if _, err := channel.AwaitWake(guest); err != nil {
				return err
			}
			if err := channel.SendAwake(guest, channel.Awake{OK: true}); err != nil {
				return err
			}
			return server.Serve(ctx, guest)
		}()
	}()
	err := play(ctx, host, server)
	host.Close()
	<-served
	return err
}

// play is the host's side of the warm-up.
func play(ctx context.Context, host net.Conn, server *channel.Server) error {
	client, err := channel.Connect(ctx, host, channel.Wake{}, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	id := channel.Identity{Run: "rehearsal", Time: time.Now(), Entropy: make([]byte, 64), MachineID: strings.Repeat("0", 32), Hostname: "localhost"}
	if err := client.Identify(ctx, id); err != nil { // the server applies none
		return err
	}
	for _, argv := range [][]string{
		{"true"}, {"sh", "-c", "cat /dev/null | true"}, {"python3", "-B", "-c", "import os, sys, json"}, {"git", "--version"},
	} {
		for range 2 {
			err = errors.Join(err, perform(ctx, client, channel.Command{Argv: argv}))
			e := audit.Event{Kind: audit.KindExit, Time: time.Now(), Exit: &audit.Exit{}, Guest: &audit.GuestTime{Time: time.Now()}}
			err = errors.Join(err, server.Emit(ctx, &e))
		}
	}
	handed := []channel.Secret{{Env: "REHEARSAL", File: "rehearsal"}}
	return errors.Join(err, perform(ctx, client, channel.Command{Argv: []string{"true"}, Secrets: handed}))
}

func perform(ctx context.Context, client *channel.Client, cmd channel.Command) error {
	cmd.Step, cmd.Env, cmd.Dir = "rehearsal", []string{"PATH=" + cell.DefaultPath}, cell.DefaultDir
	p, err := client.Start(ctx, cmd)
	if err != nil {
		return err
	}
	p.Stdin.Close()
	io.Copy(io.Discard, p.Stdout)
	said, _ := io.ReadAll(p.Stderr)
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 && exit.Code != 127 { // 127: the template does not have it
		err = fmt.Errorf("%s: exit code %d: %s%s", cmd.Argv[0], exit.Code, exit.Error, said)
	}
	return err
}
