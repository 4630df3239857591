package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestPassphrase types the passphrase at a terminal, where it is not shown. While custody waits, no core file can be
// made of it, and no other process of its user can look into it.
func TestPassphrase(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	if err := os.WriteFile(filepath.Join(d.home, "host.yaml"), []byte("version: 1\nkey: age:passphrase\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const word = "five random words or more"
	open := d.home
	for open != "/" && open != os.TempDir() { // for the user below
		if err := os.Chmod(open, 0o755); err != nil {
			t.Fatal(err)
		}
		open = filepath.Dir(open)
	}
	const nobody = 65534
	err := filepath.WalkDir(d.home, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
	typed := func(args []string, sig syscall.Signal, words ...string) string {
		cmd := d.command(args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		terminal, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.Close()
		var shown screen
		var reading sync.WaitGroup
		reading.Go(func() { io.Copy(&shown, terminal) })
		shown.await(t, "signing key: ")
		proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
		limits, err := os.ReadFile(proc + "limits")
		if err != nil || !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
			t.Errorf("core files: %v, %s", err, limits)
		}
		if info, err := os.Stat(proc + "mem"); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("its memory is its user's: %v, %v", info, err)
		}
		if sig != 0 {
			cmd.Process.Signal(sig)
		}
		for i, word := range words {
			if i > 0 {
				shown.await(t, "again: ")
			}
			io.WriteString(terminal, word+"\r")
		}
		cmd.Wait()
		reading.Wait()
		if modes, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS); err != nil || modes.Lflag&unix.ECHO == 0 {
			t.Errorf("%q leaves the terminal without echo: %v", args, err)
		}
		if strings.Contains(shown.String(), "random") {
			t.Errorf("%q shows the passphrase: %s", args, shown.String())
		}
		return shown.String()
	}
	key := regexp.MustCompile(`custody-\S+\+[0-9a-f]{8}\+\S+`)
	first := key.FindString(typed([]string{"key", "show"}, 0, word, word))
	if first == "" {
		t.Fatal("no key was made")
	}
	if said := typed([]string{"key", "rotate"}, 0, "not the passphrase"); !strings.Contains(said, "does not open it") || key.MatchString(said) {
		t.Errorf("a wrong passphrase: %s", said)
	}
	if second := key.FindString(typed([]string{"key", "rotate"}, 0, word)); second == "" || second == first {
		t.Errorf("rotated from %s to %s", first, second)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if said := typed([]string{"key", "rotate"}, sig); !strings.Contains(said, "no passphrase for the host's key: canceled") {
			t.Errorf("%v: %s", sig, said)
		}
	}
	cmd := d.command("key", "rotate")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setsid: true}
	if said := d.finish(cmd); said.code == 0 || !strings.Contains(said.stderr, "no terminal") {
		t.Errorf("without a terminal: %+v", said)
	}
}
