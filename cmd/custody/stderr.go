package main

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// ownStderr parts the program's own words from all others: it returns standard error, for those who
// have the words masked, and puts /dev/null in its place. Libraries write there what they like,
// such as the bytes of a server that answers with a credential. Only when the program crashes, Go's trace
// goes to standard error as it is: no one is left to look through it.
func ownStderr() (*os.File, error) {
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keep standard error: %w", err)
	}
	own := os.NewFile(uintptr(fd), "/dev/stderr")
	if err := debug.SetCrashOutput(own, debug.CrashOptions{}); err != nil {
		return nil, fmt.Errorf("report crashes on standard error: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("keep libraries off standard error: %w", err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), 2, 0); err != nil {
		return nil, fmt.Errorf("keep libraries off standard error: %w", err)
	}
	return own, nil
}

// adopt makes the default loggers the app's. What libraries say in the package slog, as Tessera does, is said
// like the app's own words where it is a warning or worse. The package log is not masked but left out:
// what is written there is often cut out of what a peer sent, and a part of a value cannot be found.
func (a *app) adopt() {
	words := a.log
	if words == nil {
		words = slog.New(slog.NewTextHandler(sayer{a}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: timeless}))
	}
	slog.SetDefault(words) // which has log write there
	log.SetOutput(io.Discard)
}

// timeless leaves the time out of a line for a person.
func timeless(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && attr.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attr
}
