package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/guest/cell"
	"github.com/custody-project/custody/guest/channel"
)

// rehearse runs a few commands in a cell before the snapshot is taken, over a
// tmpfs in place of the scratch disk. What it leaves behind is warmth: the
// programs' and libraries' pages, directory entries, the code of cells.
func rehearse(ctx context.Context) error {
	if err := unix.Mount("rehearsal", scratchDir, "tmpfs", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(scratchDir, 0)
	upper, work := filepath.Join(scratchDir, "upper"), filepath.Join(scratchDir, "work")
	if err := furnish(upper, work, channel.Wake{Hostname: "rehearsal"}); err != nil {
		return err
	}
	if err := mountRoot(upper, work); err != nil {
		return err
	}
	defer func() {
		for _, dir := range []string{"/dev", "/sys", ""} {
			unix.Unmount(cellDir+dir, 0)
		}
	}()
	block, err := cell.New(cell.Config{Root: cellDir, Group: filepath.Join(groupDir, "rehearsal"), Memory: cellMemory(0), PIDs: 64})
	if err != nil {
		return err
	}
	defer block.Close()
	for _, argv := range [][]string{{"true"}, {"sh", "-c", "cat /dev/null | true"}, {"python3", "-c", "import os, sys, json"}, {"git", "--version"}} {
		for range 2 {
			err = errors.Join(err, perform(ctx, block, argv))
		}
	}
	return err
}

func perform(ctx context.Context, block *cell.Block, argv []string) error {
	c, err := block.Start(ctx, channel.Command{Argv: argv, Dir: "/"})
	if gone := (*channel.ExecError)(nil); errors.As(err, &gone) {
		return nil // the template does not have it
	}
	if err != nil {
		return err
	}
	defer c.Close()
	in, out, errs := c.Pipes()
	in.Close()
	exit := c.Wait()
	said, _ := io.ReadAll(io.LimitReader(errs, 4096))
	out.Close()
	errs.Close()
	if exit.Code != 0 {
		return fmt.Errorf("%s: exit code %d: %s", argv[0], exit.Code, said)
	}
	return nil
}
