package flock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHeld: the wait for a lock ends with the context, and a lock that was given up is taken.
func TestHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := Lock(t.Context(), first, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var held *HeldError
	err := Lock(ended, second, unix.LOCK_SH)
	if !errors.As(err, &held) || !errors.Is(err, context.Canceled) || held.Path != path {
		t.Fatalf("the error is %v, want one of a held lock", err)
	}
	if held.PID != 0 && held.PID != os.Getpid() { // 0: some file systems show other device numbers
		t.Errorf("the holder is %d, want %d", held.PID, os.Getpid())
	}
	first.Close()
	if err := Lock(t.Context(), second, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
}

// TestNotice: a wait is reported once, with the file and its holder, and only when it is long.
func TestNotice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var files [2]*os.File
	for i := range files {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	var told []string
	ctx := WithNotice(t.Context(), func(text string) { told = append(told, text) })
	if err := Lock(ctx, files[0], unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := LockWithin(ctx, files[1], unix.LOCK_EX, noticeAfter/4); err == nil || len(told) > 0 {
		t.Errorf("a short wait: %v, %q", err, told)
	}
	if err := LockWithin(ctx, files[1], unix.LOCK_EX, noticeAfter+noticeAfter/4); err == nil {
		t.Error("the lock is taken")
	}
	if want := "waiting for " + path + ", held by "; len(told) != 1 || !strings.HasPrefix(told[0], want) {
		t.Errorf("it reports %q, want one %q", told, want)
	}
}
