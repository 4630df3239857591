package guest_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// canary returns a value that stands nowhere else.
func canary() string {
	b := make([]byte, 30)
	rand.Read(b)
	return base32.StdEncoding.EncodeToString(b)
}

// forms are what a dump is searched for.
func forms(name, v string) map[string][]byte {
	var wide []byte
	for _, u := range utf16.Encode([]rune(v)) {
		wide = append(wide, byte(u), byte(u>>8))
	}
	b64 := base64.StdEncoding.EncodeToString([]byte(v))
	return map[string][]byte{
		name + " raw": []byte(v), name + " head": []byte(v[:16]), name + " tail": []byte(v[len(v)-16:]),
		name + " hex": []byte(hex.EncodeToString([]byte(v))), name + " base64": []byte(b64[:len(b64)-2]), name + " utf-16": wide,
	}
}

// search is a writer that notes which needles passed, wherever writes cut them.
type search struct {
	needles map[string][]byte
	found   map[string]int
	tail    []byte
}

const longest = 256

func (s *search) Write(b []byte) (int, error) {
	joint := append(s.tail, b[:min(len(b), longest)]...)
	for name, n := range s.needles {
		s.found[name] += bytes.Count(b, n)
		if at := bytes.Index(joint, n); at >= 0 && at < len(s.tail) && at+len(n) > len(s.tail) {
			s.found[name]++
		}
	}
	s.tail = append(s.tail, b...)
	s.tail = bytes.Clone(s.tail[max(0, len(s.tail)-longest):])
	return len(b), nil
}

// inRAM returns which of the needles stand in the machine's memory, drained as it is before an image of it is written.
func inRAM(t *testing.T, m *vmtest.Machine, needles map[string][]byte) (names []string) {
	t.Helper()
	s := &search{needles: needles, found: map[string]int{}}
	if err := m.Guest.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.VM.Dump(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for name, n := range s.found {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// talk is a step that one speaks with, line by line.
type talk struct {
	t   *testing.T
	p   *channel.Process
	out *bufio.Reader
}

func start(t *testing.T, m *vmtest.Machine, cmd channel.Command) *talk {
	t.Helper()
	cmd.Env = append(cmd.Env, "PATH=/usr/bin:/bin", "HOME=/root")
	if cmd.Step == "" {
		cmd.Step = "main"
	}
	p, err := m.Guest.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if p.Stderr != nil {
		go io.Copy(io.Discard, p.Stderr)
	}
	late := time.AfterFunc(time.Minute, func() { p.Signal(context.Background(), syscall.SIGKILL) })
	t.Cleanup(func() { late.Stop() })
	return &talk{t, p, bufio.NewReader(p.Stdout)}
}

func (k *talk) say(line string) { io.WriteString(k.p.Stdin, line+"\n") }

func (k *talk) expect(want string) {
	k.t.Helper()
	if got, _ := k.out.ReadString('\n'); got != want+"\n" {
		rest, _ := io.ReadAll(io.LimitReader(k.out, 2000))
		exit, err := k.p.Wait(k.t.Context())
		k.t.Fatalf("the step said %q, then %q; expected %q; it ended with %+v, %v", got, rest, want, exit, err)
	}
}

// end waits for the step's end and returns the rest of what it said.
func (k *talk) end() string {
	k.t.Helper()
	k.p.Stdin.Close()
	rest, err := io.ReadAll(k.out)
	if err != nil {
		k.t.Fatal(err)
	}
	exit, err := k.p.Wait(k.t.Context())
	if err != nil || exit.Code != 0 {
		k.t.Fatalf("the step ended with %+v, %v: %s", exit, err, rest)
	}
	return string(rest)
}

// holder reads its secrets in all the ways that it can and keeps them in several forms.
const holder = `
import base64, os
a, b = os.environ["TOKEN"].encode(), open("/run/secrets/deep/file", "rb").read()
keep = [f(v) for v in (a, b) for f in (bytes.hex, base64.b64encode, lambda v: v.decode().encode("utf-16-le"), bytes.decode)]
print("ready", flush=True)
input()
`

// TestSecretsLeaveNoTrace: while a step holds its secrets they are found in the
// machine's memory, in each form that it made; when it has ended, none is.
func TestSecretsLeaveNoTrace(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{Sensor: true})
	env, file := canary(), canary()
	all := forms("env", env)
	for name, n := range forms("file", file) {
		all[name] = n
	}
	if found := inRAM(t, m, all); found != nil {
		t.Fatalf("before they were handed over: %q", found)
	}
	step := start(t, m, channel.Command{Argv: []string{"python3", "-c", holder}, Secrets: []channel.Secret{
		{Env: "TOKEN", Value: []byte(env)}, {File: "deep/file", Value: []byte(file)}, {Env: "BOTH", File: "both", Value: []byte(env)},
	}})
	step.expect("ready")
	if found := inRAM(t, m, all); len(found) != len(all) {
		t.Errorf("while the step runs the search finds only %q of %d forms", found, len(all))
	}
	if err := step.p.Prove(t.Context()); err != nil {
		t.Error(err)
	}
	step.say("")
	if rest := step.end(); rest != "" {
		t.Errorf("said %q", rest)
	}
	if found := inRAM(t, m, all); found != nil {
		t.Errorf("after the step's end the machine's memory holds %q", found)
	}
	if err := step.p.Prove(t.Context()); !errors.Is(err, channel.ErrEnded) {
		t.Errorf("a step that has ended was proved to live: %v", err)
	}
	if said := m.Bash("echo ${TOKEN-none} ${CUSTODY_SECRETS-none}; find /run/secrets"); said != "none none\n/run/secrets\n" {
		t.Errorf("the next step finds %q", said)
	}
}

// TestSecretsInTheCell: who can see them there, and what no one can do.
func TestSecretsInTheCell(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	odd := "it's \"$HOME\" `x` \\ \n two"
	step := start(t, m, channel.Command{
		Argv: []string{"bash", "-c", `exec 2>&1
			cd /run/secrets; stat -c '%n %a %u %F' . env file a a/b; stat -f -c %T .
			grep -c "/run/secrets .*nosuid,nodev,noexec" /proc/self/mountinfo
			printf '%s|%s|%s\n' "$CUSTODY_SECRETS" "$PLAIN" "$(cat a/b)"
			[ "$ODD" = "$1" ] && env -i bash -c '. /run/secrets/env; [ "$ODD" = "$0" ] && echo sourced' "$1"
			env | grep -c ^PLAIN=
			ulimit -Hc; (ulimit -c unlimited) 2>/dev/null && echo CORE; (cd /workspace; sh -c 'kill -SEGV $$'; ls core*) 2>/dev/null
			umount /run/secrets 2>/dev/null && echo UNMOUNTED; mount -o remount,exec /run/secrets 2>/dev/null && echo REMOUNTED
			nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@" 2>/dev/null; }
			nobody ls /run/secrets && echo LISTED; nobody cat /run/secrets/a/b && echo READ; nobody cat /run/secrets/env && echo READ
			tr '\0' '\n' < /proc/$$/environ | grep -c ^PLAIN=value; (: < /proc/$$/mem) && echo mine
			nobody cat /proc/$$/environ && echo ENVIRON
			nobody bash -c ': < /proc/$0/mem' $$ && echo MEMORY; nobody ls /proc/$$/fd /proc/$$/cwd/ && echo DESCRIPTORS
			nobody cat /proc/self/environ | tr '\0' '\n' | grep -c ^PLAIN=value
			echo ready; read x; cat a/b; echo " done"`, "bash", odd},
		Env: []string{"PLAIN=overridden"},
		Secrets: []channel.Secret{
			{Env: "PLAIN", Value: []byte("value")}, {Env: "ODD", Value: []byte(odd)}, {Env: "EMPTY"},
			{File: "file"}, {File: "a/b", Value: []byte("inside")},
		},
	})
	for _, line := range []string{
		". 700 0 directory", "env 400 0 regular file", "file 400 0 regular empty file", "a 700 0 directory", "a/b 400 0 regular file", "tmpfs",
		"1", "/run/secrets|value|inside", "sourced", "1", "0",
		"1", "mine", // root sees its own
		"1", // the child was handed the environment by its parent
		"ready",
	} {
		step.expect(line)
	}
	step.say("")
	if rest := step.end(); rest != "inside done\n" {
		t.Errorf("said %q", rest)
	}
}

// TestWipe: the files go while the step goes on, and with them every copy in the machine's memory.
func TestWipe(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	file := canary()
	step := start(t, m, channel.Command{
		Argv: []string{"bash", "-c", `exec 2>/dev/null 3< /run/secrets/file; cd /run/secrets; mkdir -p d/e; ln file d/e/link; ln -s /etc/passwd d/sym; mkfifo d/pipe
			echo ready; read x; cat <&3 | wc -c; ls -A /run/secrets . | wc -l; grep -c /run/secrets /proc/self/mountinfo; wc -l < /etc/passwd > /dev/null && echo kept
			echo more; read x`},
		Secrets: []channel.Secret{{File: "file", Value: []byte(file)}},
	})
	step.expect("ready")
	all := forms("file", file)
	if found := inRAM(t, m, all); !slices.Contains(found, "file raw") {
		t.Errorf("the search does not find the file: %q", found)
	}
	for range 2 { // a second time does no harm
		if err := step.p.Wipe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if found := inRAM(t, m, all); found != nil {
		t.Errorf("after the wipe the machine's memory holds %q", found)
	}
	if err := step.p.Prove(t.Context()); err != nil {
		t.Error(err)
	}
	step.say("")
	for _, line := range []string{"0", "3", "0", "kept", "more"} { // ls: two names and an empty line
		step.expect(line)
	}
	step.say("")
	step.end()
	if err := step.p.Wipe(t.Context()); err != nil {
		t.Errorf("wipe after the end: %v", err)
	}
}

// BenchmarkSecrets is an exec round trip: without secrets, with four, and with the most
// and largest; then a proof of life. handed-ms is until the secrets are on their way into the guest.
func BenchmarkSecrets(b *testing.B) {
	m := vmtest.Restore(b, vmtest.Options{Sensor: true})
	value := []byte(canary())
	several := func(n int, value []byte) (all []channel.Secret) {
		for i := range n {
			all = append(all, channel.Secret{Env: fmt.Sprint("S", i), File: fmt.Sprint("f", i), Value: value})
		}
		return all
	}
	for _, bench := range []struct {
		name    string
		secrets []channel.Secret
	}{{"none", nil}, {"four", several(4, value)}, {"most", several(channel.MaxSecrets, bytes.Repeat([]byte("x"), channel.MaxSecret))}} {
		b.Run(bench.name, func(b *testing.B) {
			var handed time.Duration
			for b.Loop() {
				began := time.Now()
				p, err := m.Guest.Start(b.Context(), channel.Command{Step: "main", Argv: []string{"/bin/true"}, Secrets: bench.secrets})
				if err != nil {
					b.Fatal(err)
				}
				handed += time.Since(began)
				p.Stdin.Close()
				go io.Copy(io.Discard, p.Stderr)
				io.Copy(io.Discard, p.Stdout)
				if exit, err := p.Wait(b.Context()); err != nil || exit.Code != 0 {
					b.Fatal(exit, err)
				}
			}
			b.ReportMetric(float64(handed.Microseconds())/1000/float64(b.N), "handed-ms/op")
		})
	}
	b.Run("proof", func(b *testing.B) {
		p, err := m.Guest.Start(b.Context(), channel.Command{Step: "main", Argv: []string{"/bin/cat"}, Leased: true})
		if err != nil {
			b.Fatal(err)
		}
		go io.Copy(io.Discard, p.Stdout)
		go io.Copy(io.Discard, p.Stderr)
		for b.Loop() {
			if err := p.Prove(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		p.Stdin.Close()
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
}

// TestPrinted: of what a step prints nothing stays in the guest either.
func TestPrinted(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{Sensor: true})
	out, errs, tty := canary(), canary(), canary()
	print := `import os, sys
for i in range(3): os.write(1, os.environ["OUT"].encode()); os.write(2, os.environ["ERR"].encode() * 2000); print(flush=True)
input()`
	step := start(t, m, channel.Command{Argv: []string{"python3", "-c", print}, Secrets: []channel.Secret{{Env: "OUT", Value: []byte(out)}, {Env: "ERR", Value: []byte(errs)}}})
	for range 3 {
		step.expect(out)
	}
	step.say("")
	step.end()
	step = start(t, m, channel.Command{Argv: []string{"sh", "-c", "echo $T; echo $T >&2"}, TTY: &channel.Winsize{Rows: 5, Cols: 200}, Secrets: []channel.Secret{{Env: "T", Value: []byte(tty)}}})
	step.expect(tty + "\r")
	step.expect(tty + "\r")
	step.end()
	all := forms("stdout", out)
	for name, n := range forms("stderr", errs) {
		all[name] = n
	}
	for name, n := range forms("terminal", tty) {
		all[name] = n
	}
	if found := inRAM(t, m, all); found != nil {
		t.Errorf("after the steps' end the machine's memory holds %q", found)
	}
}

// TestOtherCPU: a page that one CPU put to use is freed, and so zeroed, when its last user ended on another.
func TestOtherCPU(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{CPUs: 2, Sensor: true})
	file, env := canary(), canary()
	move := `import mmap, os
os.sched_setaffinity(0, {0})
value = open("/run/secrets/file", "rb").read()
open("/dev/shm/x", "wb").write(value)
page = mmap.mmap(-1, 4096)
page.write(value + os.environ["ENV"].encode())
print("ready", flush=True)
input()
os.sched_setaffinity(0, {1})
os.unlink("/dev/shm/x")
page.close()
print("moved", flush=True)
input()`
	step := start(t, m, channel.Command{Argv: []string{"python3", "-c", move}, Secrets: []channel.Secret{{File: "file", Value: []byte(file)}, {Env: "ENV", Value: []byte(env)}}})
	step.expect("ready")
	step.say("")
	step.expect("moved")
	step.say("")
	step.end()
	all := forms("file", file)
	for name, n := range forms("env", env) {
		all[name] = n
	}
	s := &search{needles: all, found: map[string]int{}}
	if err := m.VM.Dump(t.Context(), s); err != nil { // without a drain: the end of a step with secrets has made one
		t.Fatal(err)
	}
	for name, n := range s.found {
		if n > 0 {
			t.Errorf("after the step's end the machine's memory holds %q", name)
		}
	}
}

// TestHashedSecret: of a file that the sensor has hashed nothing stays once the file is gone.
func TestHashedSecret(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{Sensor: true})
	values, all := []string{canary(), strings.Repeat(canary(), 3)}, map[string][]byte{}
	for i, v := range values {
		for name, n := range forms(fmt.Sprint("file ", i), v) {
			all[name] = n
		}
	}
	step := start(t, m, channel.Command{
		Argv:    []string{"sh", "-ec", "for i in 0 1; do cp /run/secrets/f$i /dev/shm/x$i; cp /dev/shm/x$i /workspace/x$i; done; sleep 1; rm /dev/shm/x? /workspace/x?; echo removed; read x"},
		Secrets: []channel.Secret{{File: "f0", Value: []byte(values[0])}, {File: "f1", Value: []byte(values[1])}},
	})
	step.expect("removed")
	step.say("")
	step.end()
	if found := inRAM(t, m, all); found != nil {
		t.Errorf("after the step's end the machine's memory holds %q", found)
	}
}

// TestMostSecrets: as much as is allowed, in one step after the other, each with its own.
func TestMostSecrets(t *testing.T) {
	m := vmtest.Restore(t, vmtest.Options{})
	const shared = "sed -n 's/^Shmem: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo" // what lies in every tmpfs of the machine
	before := m.Bash(shared)
	needles := map[string][]byte{}
	for i := range 2 {
		value := canary()
		value += strings.Repeat("'", channel.MaxSecret-len(value)) // each makes four bytes for a shell
		for name, n := range forms(fmt.Sprint("step ", i), value[:48]) {
			needles[name] = n
		}
		var all []channel.Secret
		for n := range channel.MaxSecrets {
			all = append(all, channel.Secret{Env: fmt.Sprint("S", n), File: fmt.Sprintf("s%d/%d", i, n), Value: []byte(value)})
		}
		step := start(t, m, channel.Command{
			Step: fmt.Sprint("step", i), Secrets: all,
			Argv: []string{"bash", "-c", `cd /run/secrets; ls; cat s*/* | wc -c; printf %s "$S63" | sha256sum; env -i bash -c '. ./env; printf %s "$S63" | sha256sum'; read x`},
		})
		step.expect("env")
		step.expect(fmt.Sprint("s", i))
		step.expect(fmt.Sprint(channel.MaxSecret * channel.MaxSecrets))
		sum := fmt.Sprintf("%x  -", sha256.Sum256([]byte(value)))
		step.expect(sum)
		step.expect(sum)
		if err := step.p.Prove(t.Context()); err != nil {
			t.Error(err)
		}
		step.say("")
		step.end()
	}
	if found := inRAM(t, m, needles); found != nil {
		t.Errorf("afterwards the machine's memory holds %q", found)
	}
	var kB [2]int
	if _, err := fmt.Sscan(before+m.Bash(shared), &kB[0], &kB[1]); err != nil || kB[1] > kB[0]+512 {
		t.Errorf("file systems in memory held %d kB before the steps and %d after them: something keeps one of them (%v)", kB[0], kB[1], err)
	}
}
