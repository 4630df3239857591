package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
)

// channelFD is the descriptor of the channel that the container's runtime passes to init.
const channelFD = 3

// RunContainer is init of a container whose kernel is gVisor's sentry: the host has mounted the cells'
// root, set up the network and observes the processes, so that init starts no sensor. It returns when the
// channel has ended.
func RunContainer(ctx context.Context) error {
	if err := unix.SetNonblock(channelFD, true); err != nil {
		return fmt.Errorf("open the channel: %w", err)
	}
	unix.CloseOnExec(channelFD)
	port := &port{os.NewFile(channelFD, "host")}
	st, err := bootContainer()
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	if err := channel.SendReady(port); err != nil {
		return fmt.Errorf("report to the host: %w", err)
	}
	if _, err := channel.AwaitWake(port); err != nil {
		return err
	}
	server := channel.NewServer(st.block, openWorkspace, mark)
	server.EndSession, server.File = st.block.EndSession, st.block.File
	server.CPU, server.Dial, server.Ports = st.block.CPU, dialPort, listeningPorts
	// The sentry's clock and randomness are the host's: nothing has been restored.
	server.Identify = func(_ context.Context, id channel.Identity) error {
		limits, err := st.assume(id)
		if err != nil {
			return err
		}
		return st.block.Open(limits, id.Hostname, nil)
	}
	return serve(ctx, port, server)
}

// bootContainer prepares the resources of the cells.
func bootContainer() (*stage, error) {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"close the process to others", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
		{"mount", mountContainer},
		{"make control groups", makeContainerGroups},
		{"make the cells' devices", makeDevices},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	st := &stage{memory: machineMemory()}
	if err := st.openIdentity(); err != nil {
		return nil, err
	}
	if err := prepareContainerRoot(); err != nil {
		return nil, fmt.Errorf("prepare the root: %w", err)
	}
	if err := mountShared(); err != nil {
		return nil, err
	}
	var err error
	if st.trustFiles, err = newTrustFiles(); err != nil {
		return nil, err
	}
	st.block, err = cell.New(cell.Config{Root: cellDir, Group: filepath.Join(groupDir, "cells"), Sentry: true})
	return st, err
}

func mountContainer() error {
	for _, dir := range []string{deviceDir, identityDir, groupDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if _, err := os.Stat(filepath.Join(groupDir, "cgroup.procs")); errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mount("cgroup", groupDir, "cgroup2", quiet, ""); err != nil {
			return fmt.Errorf("cgroup2 on %s: %w", groupDir, err)
		}
	}
	if err := unix.Mount("identity", identityDir, "tmpfs", quiet, "size=64k,mode=755"); err != nil {
		return fmt.Errorf("tmpfs on %s: %w", identityDir, err)
	}
	return nil
}

func makeContainerGroups() error {
	for _, dir := range []string{"init", "cells"} {
		if err := os.Mkdir(filepath.Join(groupDir, dir), 0o755); err != nil {
			return err
		}
	}
	for _, f := range [][2]string{
		{"init/cgroup.procs", "1"},
		{"cgroup.subtree_control", "+memory +pids +cpu"},
		{"cells/cgroup.subtree_control", "+memory"},
	} {
		if err := os.WriteFile(filepath.Join(groupDir, f[0]), []byte(f[1]), 0); err != nil {
			return err
		}
	}
	return nil
}

// prepareContainerRoot makes the files that differ from the template's. It removes the template's files with these
// names, which may be links to any path.
func prepareContainerRoot() error {
	root, err := os.OpenRoot(cellDir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, dir := range []string{"etc", cell.DefaultDir[1:]} {
		if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	files := map[string]string{"resolv.conf": resolvConf}
	for _, name := range identity {
		files[name] = ""
	}
	for name, content := range files {
		name = "etc/" + name
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mark makes a socket, which the host observes: if it does not, gVisor has dropped messages about what happened before.
func mark(context.Context) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
