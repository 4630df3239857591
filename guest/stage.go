package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
)

// stage is what the cells stand on: the run's disk, the overlay over it and
// the block of cells. It is built before the snapshot. Whether it is kept
// depends on the disk that the run brings:
//
//	READY with an ext4 on /dev/vdb ---- Wake, the same disk --> kept
//	      |                             Wake, another disk ---> refused
//	      +-- without one: over a tmpfs -- Wake --------------> built again on the disk
type stage struct {
	block *cell.Block
	disk  bool   // it stands on the disk, not on a tmpfs
	label []byte // what tells that disk from others
}

func newStage(ctx context.Context) (*stage, error) {
	st := &stage{}
	if err := mountScratch(0); err == nil {
		st.disk = true
		if st.label, err = diskLabel(); err != nil {
			return nil, err
		}
	} else if err := unix.Mount("rehearsal", scratchDir, "tmpfs", 0, ""); err != nil {
		return nil, err
	}
	if err := st.build("localhost", ""); err != nil {
		return nil, err
	}
	if err := rehearse(ctx, st.block); err != nil {
		log.Printf("rehearsal: %v", err) // the first command will be slower, nothing else
	}
	st.settle()
	return st, nil
}

// settle lets what is under way come to its end, so that a snapshot holds a
// guest at rest and no wake has to finish the rehearsal.
func (st *stage) settle() {
	st.block.AwaitReady()
	unix.Sync()
	runtime.GC()
	time.Sleep(rest)
}

// rest is longer than the kernel's short-lived background work takes.
const rest = 150 * time.Millisecond

// set makes the stage the run's.
func (st *stage) set(w channel.Wake) error {
	if st.disk {
		if err := st.checkDisk(); err != nil {
			return err
		}
		return writeIdentity(w.Hostname, w.MachineID)
	}
	if err := st.strike(); err != nil {
		return fmt.Errorf("leave the stage: %w", err)
	}
	if err := mountScratch(w.Scratch); err != nil {
		return fmt.Errorf("mount the scratch disk: %w", err)
	}
	return st.build(w.Hostname, w.MachineID)
}

// checkDisk refuses another disk than the one that is mounted: what the kernel
// remembers of the old one would be written to it.
func (st *stage) checkDisk() error {
	label, err := diskLabel()
	if err != nil {
		return fmt.Errorf("look at the scratch disk: %w", err)
	}
	if !bytes.Equal(label, st.label) {
		return errors.New("the snapshot was taken with its scratch disk mounted, and this is another disk")
	}
	return nil
}

// build mounts the overlay over what is mounted on scratchDir and makes the block.
func (st *stage) build(hostname, machineID string) (err error) {
	upper, work := filepath.Join(scratchDir, "upper"), filepath.Join(scratchDir, "work")
	for _, dir := range []string{upper, work, filepath.Join(upper, "etc"), filepath.Join(upper, cell.DefaultDir)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("prepare the root: %w", err)
		}
	}
	if err := writeIdentity(hostname, machineID); err != nil {
		return err
	}
	if err := mountRoot(upper, work); err != nil {
		return err
	}
	st.block, err = cell.New(cell.Config{Root: cellDir, Group: filepath.Join(groupDir, "cells")})
	return err
}

func (st *stage) strike() error {
	err := st.block.Close()
	return errors.Join(err, unix.Unmount(cellDir, unix.MNT_DETACH), unix.Unmount(scratchDir, unix.MNT_DETACH))
}

// identity are the files in /etc that tell one machine from another. They lie
// on a tmpfs and are mounted over the overlay's: to rewrite them at each wake is cheap there.
var identity = [...]string{"hostname", "hosts", "machine-id"}

func writeIdentity(hostname, machineID string) error {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t" + hostname + "\n"
	for i, content := range []string{hostname + "\n", hosts, machineID + "\n"} {
		if err := os.WriteFile(filepath.Join(identityDir, identity[i]), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the machine's identity: %w", err)
		}
	}
	return nil
}

// mountRoot mounts the root that the cells change to, with what they all share in it.
func mountRoot(upper, work string) error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	layers := "lowerdir=" + lowerDir + ",upperdir=" + upper + ",workdir=" + work + ",volatile"
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"overlay", cellDir, "overlay", unix.MS_NOATIME | unix.MS_NODEV, layers},
		{"sysfs", cellDir + "/sys", "sysfs", quiet | unix.MS_RDONLY, ""},
		{deviceDir, cellDir + "/dev", "", unix.MS_BIND, ""},
		{"", cellDir + "/dev", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC, ""},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for _, name := range identity {
		if err := mountIdentity(name); err != nil {
			return fmt.Errorf("mount /etc/%s: %w", name, err)
		}
	}
	return nil
}

func mountIdentity(name string) error {
	target := filepath.Join(cellDir, "etc", name)
	f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	f.Close()
	return unix.Mount(filepath.Join(identityDir, name), target, "", unix.MS_BIND, "")
}

// rehearse speaks the whole protocol with itself, before the snapshot is taken.
// What that leaves behind is warmth: pages of programs and libraries, directory
// entries, caches of types, grown stacks. None of it holds a secret or an identity.
func rehearse(ctx context.Context, block *cell.Block) error {
	host, guest := net.Pipe()
	served := make(chan error, 1)
	server := channel.NewServer(block, openWorkspace, nil)
	go func() {
		served <- func() error {
			if _, err := channel.AwaitWake(guest); err != nil {
				return err
			}
			if err := channel.SayAwake(guest, channel.Awake{OK: true, Time: now(), BootID: bootID()}); err != nil {
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

// play is the host's part.
func play(ctx context.Context, host net.Conn, server *channel.Server) error {
	wake := channel.Wake{Run: "rehearsal", Time: now(), Entropy: make([]byte, 64), MachineID: strings.Repeat("0", 32), Hostname: "localhost"}
	client, err := channel.Connect(ctx, host, wake, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, argv := range [][]string{
		{"true"}, {"sh", "-c", "cat /dev/null | true"}, {"python3", "-B", "-c", "import os, sys, json"}, {"git", "--version"},
	} {
		for range 2 {
			err = errors.Join(err, perform(ctx, client, argv))
			e := audit.Event{Kind: audit.KindExit, Time: now(), Exit: &audit.Exit{}, Guest: &audit.GuestTime{Time: now()}}
			err = errors.Join(err, server.Emit(ctx, &e))
		}
	}
	return err
}

func perform(ctx context.Context, client *channel.Client, argv []string) error {
	p, err := client.Start(ctx, channel.Command{Step: "rehearsal", Argv: argv, Env: []string{"PATH=" + cell.DefaultPath}, Dir: "/"})
	if err != nil {
		return err
	}
	p.Stdin.Close()
	io.Copy(io.Discard, p.Stdout)
	said, _ := io.ReadAll(p.Stderr)
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 && exit.Code != 127 { // 127: the template does not have it
		err = fmt.Errorf("%s: exit code %d: %s%s", argv[0], exit.Code, exit.Error, said)
	}
	return err
}
