package guest_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// say has a command of start execute a line of its script, and returns when it has answered.
func (s *suspended) say(p *paused, line string) (answer string) {
	s.Helper()
	s.spoken++
	end := fmt.Sprintf("end %d\n", s.spoken)
	before := len(p.said())
	io.WriteString(p.proc.Stdin, line+"; echo "+end)
	p.await(s.T, end)
	return strings.TrimSuffix(p.said()[before:], end)
}

const obey = `while read -r line; do eval "$line" 2>&1; done`

// jailed is a command whose main process has another root, with another directory of secrets. Its child has the first root and obeys.
const jailed = `
import os, subprocess
os.makedirs("/srv/jail/run/secrets")
child = subprocess.Popen(["bash", "-c", os.environ["OBEY"]])
os.chroot("/srv/jail")
os.chdir("/")
child.wait()
`

// TestAttachSecrets: a command of a suspended guest gets new secrets at the paths and with the owners and the limits of the first ones,
// whatever it has done to its root. Of the first ones nothing is left, and of the new ones neither after a wipe.
func TestAttachSecrets(t *testing.T) {
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{Sensor: true})}
	values := map[string]string{}
	secrets := func(round string) []channel.Secret {
		values[round] = canary()
		v := []byte(values[round])
		return []channel.Secret{{File: "file", Value: v}, {File: "a/b", Value: v}, {Env: "V", Value: v}}
	}
	plain := s.start(obey, nil)
	s.next = func(cmd *channel.Command) { cmd.User, cmd.Secrets = "nobody", secrets("user") }
	user := s.start(obey, nil)
	s.next = func(cmd *channel.Command) {
		cmd.Argv, cmd.Env = []string{"python3", "-c", jailed}, append(cmd.Env, "OBEY="+obey)
		cmd.Secrets = secrets("root")[:2] // a variable would stay in the process
	}
	root := s.start("", nil)
	const look = `(cd /run/secrets && stat -c "%n %a %U" . env file a a/b); stat -f -c "%b %c" /run/secrets; grep -c "/run/secrets .*nosuid,nodev,noexec" /proc/self/mountinfo`
	before := map[*paused]string{user: s.say(user, look), root: s.say(root, look)}
	if !strings.Contains(before[user], "a/b 400 nobody\n") || !strings.Contains(before[root], "a/b 400 root\n") {
		t.Fatalf("before: %q %q", before[user], before[root])
	}
	hash := func(name string) string { return fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(values[name]))) }
	for round := range 2 {
		for _, p := range []*paused{user, root} {
			if err := p.proc.Wipe(s.limited()); err != nil {
				t.Fatal(err)
			}
		}
		s.park(func() {})
		s.connect(vmtest.Identity(vmtest.Options{}))
		if found := inRAM(t, s.machine, forms("root", values["root"])); found != nil {
			t.Errorf("round %d: the memory of the suspended guest holds %q", round, found)
		}
		user.cmd.Secrets, root.cmd.Secrets = secrets("user"), secrets("root")[:2]
		s.attach()
		for p, name := range map[*paused]string{user: "user", root: "root"} {
			if got := s.say(p, look); got != before[p] {
				t.Errorf("%s: the secrets were %q, are %q", name, before[p], got)
			}
			if got := s.say(p, "sha256sum < /run/secrets/a/b"); got != hash(name) {
				t.Errorf("%s: the file is not the new one: %q", name, got)
			}
			if err := p.proc.Prove(s.limited()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := s.say(user, `. /run/secrets/env; printf %s "$V" | sha256sum`); got != hash("user") {
			t.Errorf("the file with variables is not the new one: %q", got)
		}
		if got := s.say(plain, "find /run/secrets /srv/jail/run/secrets; cat /run/secrets/*"); !strings.HasPrefix(got, "/run/secrets\n/srv/jail/run/secrets\ncat: ") {
			t.Errorf("another command finds %q", got)
		}
	}
	if err := root.proc.Wipe(s.limited()); err != nil {
		t.Fatal(err)
	}
	if got := s.say(root, "ls /run/secrets | wc -l"); got != "0\n" {
		t.Errorf("after the wipe: %q files", got)
	}
	if found := inRAM(t, s.machine, forms("root", values["root"])); found != nil {
		t.Errorf("after the wipe the memory holds %q", found)
	}
	for _, p := range s.commands {
		p.proc.Stdin.Close()
		if exit, err := p.proc.Wait(s.limited()); err != nil || exit.Code != 0 {
			t.Errorf("%+v %v", exit, err)
		}
	}
	if found := inRAM(t, s.machine, forms("user", values["user"])); found != nil {
		t.Errorf("after the end the memory holds %q", found)
	}
}

// TestAttachPlain: a command that was started without secrets gets none later: what it has left behind would outlive them.
func TestAttachPlain(t *testing.T) {
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{})}
	p := s.start(obey, nil)
	s.park(func() {})
	s.connect(vmtest.Identity(vmtest.Options{}))
	cmd := p.cmd
	cmd.Secrets = []channel.Secret{{File: "file", Value: []byte("value")}}
	proc, err := s.suspension().Attach(s.limited(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, proc.Stderr)
	go io.Copy(io.Discard, proc.Stdout)
	if exit, err := proc.Wait(s.limited()); err != nil || exit.Code != 125 || !strings.Contains(exit.Error, "started without secrets") {
		t.Errorf("%+v %v", exit, err)
	}
	s.attach()
	if got := s.say(p, "ls /run/secrets | wc -l"); got != "0\n" {
		t.Errorf("%q files", got)
	}
}
