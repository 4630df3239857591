package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/internal/sampleruns"
)

// writerEnv names the $CUSTODY_HOME in which a child of TestRetentionKilled records runs until it is killed.
const writerEnv = "CUSTODY_TEST_WRITER"

// writeRuns records one run after the other, some seconds each, and does not return.
func writeRuns(dir string) {
	for {
		if _, err := sampleruns.Write(context.Background(), dir, slowly(sampleruns.Large(60))); err != nil {
			fmt.Fprintln(os.Stderr, "writer:", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// slowly yields events over some seconds, so that a run has several segments.
func slowly(events iter.Seq[audit.Event]) iter.Seq[audit.Event] {
	return func(yield func(audit.Event) bool) {
		for e := range events {
			time.Sleep(50 * time.Millisecond)
			if !yield(e) {
				return
			}
		}
	}
}

// assault is one round of TestRetentionKilled.
type assault struct {
	*door
	dice  *rand.Rand
	mu    sync.Mutex
	kills map[string]int
	wrong []string
}

func (a *assault) roll(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dice.IntN(n)
}

// attack makes a process work repeatedly until stop is closed, and kills it at a random time, if it still runs. For
// processes that end by themselves, judge describes errors.
func (a *assault) attack(stop <-chan struct{}, name string, within time.Duration, make func() *exec.Cmd, judge func(code int, output string) string) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		cmd := make()
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			a.add(name + ": " + err.Error())
			return
		}
		ended := time.AfterFunc(time.Duration(a.roll(int(within))), func() { cmd.Process.Kill() })
		err := cmd.Wait()
		if ended.Stop(); cmd.ProcessState.ExitCode() < 0 {
			a.mu.Lock()
			a.kills[name]++
			a.mu.Unlock()
		} else if wrong := judge(cmd.ProcessState.ExitCode(), out.String()); wrong != "" {
			text := out.String()
			a.add(fmt.Sprintf("%s: %s: %v: ...%s", name, wrong, err, text[max(0, len(text)-600):]))
		}
	}
}

func (a *assault) add(wrong string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wrong = append(a.wrong, wrong)
}

// one returns the name of a run with a log here, or of any run if there is none.
func (a *assault) one() string {
	entries, _ := os.ReadDir(filepath.Join(a.home, "runs"))
	if len(entries) == 0 {
		return "last"
	}
	return entries[a.roll(len(entries))].Name()
}

// round runs a live run, a live server, retention, erasures, rotations and verifications concurrently, and kills them.
func (a *assault) round(seconds int) {
	writer := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+a.home)
		return cmd
	}
	custody := func(args ...string) func() *exec.Cmd {
		return func() *exec.Cmd { return a.command(args...) }
	}
	anything := func(int, string) string { return "" }
	never := func(code int, output string) string {
		if code == 1 && !strings.Contains(output, "deleted by retention") {
			return "a record does not hold"
		}
		return ""
	}
	lost := func(code int, output string) string { // a run that ends just now is not in the host's log yet, a deletion that was killed just now not carried out
		for _, name := range []string{"run-missing", "deletion-forged", "damaged"} {
			if code == 1 && strings.Contains(output, name+": ") {
				return name
			}
		}
		return ""
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { a.attack(stop, "writer", 9*time.Second, writer, anything) })
	all.Go(func() { a.attack(stop, "serve", 6*time.Second, custody("serve", "--listen", "127.0.0.1:0"), anything) })
	all.Go(func() { a.attack(stop, "prune", 3*time.Second, custody("prune"), anything) })
	all.Go(func() {
		a.attack(stop, "key rotate", time.Second, custody("key", "rotate"), func(int, string) string {
			time.Sleep(time.Second) // each makes every later verification longer
			return ""
		})
	})
	all.Go(func() {
		a.attack(stop, "erase", 4*time.Second, func() *exec.Cmd {
			return a.command("erase", a.one(), strconv.Itoa(4+a.roll(40)), "--reason", "a test", "--by", "test")
		}, anything)
	})
	all.Go(func() {
		var run string
		a.attack(stop, "verify", 4*time.Second, func() *exec.Cmd {
			run = a.one()
			return a.command("verify", run)
		}, func(code int, output string) string {
			if never(code, output) != "" { // an erasure was killed just then: the next command carries it out
				cmd := a.command("verify", run)
				again, _ := cmd.CombinedOutput()
				if wrong := never(cmd.ProcessState.ExitCode(), string(again)); wrong != "" {
					return fmt.Sprintf("%s, twice: ...%s", wrong, again[max(0, len(again)-600):])
				}
			}
			return ""
		})
	})
	all.Go(func() { a.attack(stop, "fsck", 6*time.Second, custody("fsck"), lost) })
	time.Sleep(time.Duration(seconds) * time.Second)
	close(stop)
	all.Wait()
}

// TestRetentionKilled: whatever is killed when, what verified before verifies after, or was deleted by retention, and fsck
// finds nothing. CUSTODY_ROUNDS is for how many rounds, CUSTODY_SEED repeats the times of the kills as far as a machine can.
func TestRetentionKilled(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("CUSTODY_ROUNDS"))
	seed, err := strconv.ParseUint(os.Getenv("CUSTODY_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	a := &assault{door: newDoor(t), dice: rand.New(rand.NewPCG(seed, 0)), kills: map[string]int{}}
	var verified []string
	held := sampleruns.Record(t, a.home, sampleruns.Review())
	a.must(0, "hold", held, "--reason", "it stays")
	deleted := 0
	for i := range max(rounds, 2) {
		a.retaining("delete_after: 12s", "retain: {age: 4s}")
		a.round(10)
		a.retaining() // what is there now stays for this round's check
		if s := a.custody("fsck"); s.code != 0 {
			a.add(fmt.Sprintf("after round %d: fsck %d: %s%s", i, s.code, s.stdout, s.stderr))
		}
		for _, run := range verified {
			if s := a.custody("verify", run); s.code != 0 && !strings.Contains(s.stderr, "run "+run+" was deleted by retention") {
				a.add(fmt.Sprintf("after round %d: %s verified before: %d: %s%s", i, run, s.code, s.stdout, s.stderr))
			}
		}
		verified = verified[:0]
		for _, run := range a.logNames() {
			if s := a.custody("verify", run); s.code == 0 {
				verified = append(verified, run)
			} else {
				a.add(fmt.Sprintf("after round %d: %s: %d: %s%s", i, run, s.code, s.stdout, s.stderr))
			}
		}
		if !slices.Contains(verified, held) {
			a.add(held + " was held, and does not verify any more")
		}
		if len(a.wrong) > 0 {
			t.Fatalf("round %d of seed %d: %v", i, seed, errors.New(strings.Join(a.wrong, "\n")))
		}
	}
	deleted = strings.Count(a.must(0, "runs", "--deleted", "--json").stdout, "\n")
	t.Logf("seed %d: kills %v, %d runs deleted, %d left", seed, a.kills, deleted, len(verified))
}
