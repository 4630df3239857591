package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

func leased(script string) Command {
	cmd := shell(script)
	cmd.Leased = true
	return cmd
}

// drain reads what a process writes, until it or the session ends.
func drain(p *Process) {
	go io.Copy(io.Discard, p.Stdout)
	go io.Copy(io.Discard, p.Stderr)
}

// TestProve: a live command can be proved repeatedly, one that has ended cannot.
func TestProve(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	ctx := timeout(t)
	cmd := leased("read x; exit 4")
	cmd.Refused = func(reason string) { t.Errorf("refused: %s", reason) }
	p, err := c.Start(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	drain(p)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 20 {
				if err := p.Prove(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Wipe(ctx); err != nil {
		t.Error(err)
	}
	io.WriteString(p.Stdin, "\n")
	if exit, err := p.Wait(ctx); err != nil || exit.Code != 4 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if err := p.Prove(ctx); !errors.Is(err, ErrEnded) {
		t.Errorf("proved after the end: %v", err)
	}
	if err := p.Wipe(ctx); err != nil {
		t.Errorf("wipe after the end: %v", err)
	}
	plain, err := c.Start(ctx, shell("read x"))
	if err != nil {
		t.Fatal(err)
	}
	drain(plain)
	if err := plain.Prove(ctx); !errors.Is(err, ErrNotLeased) {
		t.Errorf("a command that is not leased: %v", err)
	}
	plain.Stdin.Close()
	plain.Wait(ctx)
}

// TestProveMainProcess: a proof requires that the main process runs; its children with the same output do not count.
func TestProveMainProcess(t *testing.T) {
	g := newGuest(t, localRunner{})
	c := g.connect(t, g.host, nil)
	p, err := c.Start(timeout(t), leased("head -c 310000 /dev/zero; echo ready >&2; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	// More than a window of its output is unread, so that its end will not be reported.
	if _, err := io.ReadFull(p.Stderr, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := p.Prove(timeout(t)); err != nil {
		t.Error(err)
	}
	if err := p.Signal(timeout(t), 9); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		short, cancel := context.WithTimeout(timeout(t), 20*time.Millisecond)
		err = p.Prove(short)
		cancel()
		if err != nil {
			break
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the main process is dead and its output unread: %v", err)
	}
	drain(p)
	if _, err := p.Wait(timeout(t)); err != nil {
		t.Error(err)
	}
}

// TestProveFrozen: while the VM is frozen, Prove ends with its context; after the thaw the late proof is reported and tolerated.
func TestProveFrozen(t *testing.T) {
	g := newGuest(t, localRunner{})
	conn := &frozen{ReadWriteCloser: g.host}
	c := g.connect(t, conn, nil)
	var refusals atomic.Int64
	cmd := leased("read x")
	cmd.Refused = func(reason string) {
		if refusals.Add(1); reason != "its proof came too late" {
			t.Errorf("refused because %s", reason)
		}
	}
	p, err := c.Start(timeout(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	drain(p)
	for range maxRefusals + 3 {
		conn.ice.Lock()
		short, cancel := context.WithTimeout(timeout(t), 5*time.Millisecond)
		if err := p.Prove(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("proved by a frozen guest: %v", err)
		}
		cancel()
		conn.ice.Unlock()
		if err := p.Prove(timeout(t)); err != nil {
			t.Fatal(err)
		}
	}
	if refusals.Load() == 0 {
		t.Error("no late proof was told")
	}
	p.Stdin.Close()
	if _, err := p.Wait(timeout(t)); err != nil {
		t.Error(err)
	}
}

// fakeInit is an init that implements the protocol for one leased command, and whose answers the test chooses.
type fakeInit struct {
	ctl net.Conn
	key []byte // the step's
}

func (g *fakeInit) say(v any)             { g.ctl.Write(frameOf(v)) }
func (g *fakeInit) proof(c []byte) *proof { return &proof{Step: "s", MAC: prove(g.key, c, "s")} }

// challenge reads the next.
func (g *fakeInit) challenge() []byte {
	var m control
	for m.Prove == nil {
		if readFrame(g.ctl, &m, maxReport) != nil {
			return nil
		}
	}
	return m.Prove
}

// withFakeInit starts a leased command in a guest that play implements, and returns the reasons of refusals.
func withFakeInit(t *testing.T, play func(*fakeInit)) (*Client, *Process, func() []string) {
	t.Helper()
	c, _ := misbehaving(t, func(s *yamux.Session) {
		var streams []net.Conn
		for range 5 { // events, control, and three of data
			conn, err := s.Accept()
			if err != nil {
				return
			}
			if streams = append(streams, conn); len(streams) <= 2 {
				var h hello
				readFrame(conn, &h, maxHello)
			}
		}
		g := &fakeInit{ctl: streams[1]}
		b, erase, err := receive(g.ctl, sealContext("", "s"))
		if err != nil {
			return
		}
		g.key = append(g.key, b.key[:]...)
		erase()
		play(g)
	})
	var mu sync.Mutex
	var reasons []string
	p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"x"}, Leased: true, Refused: func(reason string) {
		mu.Lock()
		defer mu.Unlock()
		reasons = append(reasons, reason)
	}})
	if err != nil {
		t.Fatal(err)
	}
	drain(p)
	return c, p, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(reasons) }
}

// TestHostileProofs: a wrong answer renews nothing and is reported.
func TestHostileProofs(t *testing.T) {
	for name, tt := range map[string]struct {
		play   func(*fakeInit)
		proved bool
		reason string
	}{
		"honest":             {func(g *fakeInit) { g.say(report{Proof: g.proof(g.challenge())}) }, true, ""},
		"wrong":              {func(g *fakeInit) { g.challenge(); g.say(report{Proof: g.proof([]byte("another challenge"))}) }, false, "its proof was wrong"},
		"without a key":      {func(g *fakeInit) { c := g.challenge(); g.key = make([]byte, 32); g.say(report{Proof: g.proof(c)}) }, false, "its proof was wrong"},
		"empty":              {func(g *fakeInit) { g.challenge(); g.say(report{Proof: &proof{Step: "s"}}) }, false, "its proof was wrong"},
		"challenge returned": {func(g *fakeInit) { g.say(report{Proof: &proof{Step: "s", MAC: g.challenge()}}) }, false, "its proof was wrong"},
		"another step": {func(g *fakeInit) {
			c := g.challenge()
			g.say(report{Proof: &proof{Step: "other", MAC: prove(g.key, c, "other")}})
			g.say(report{Proof: g.proof(c)})
		}, true, "it sent a proof for another step"},
		"another step's under our name": {func(g *fakeInit) { g.say(report{Proof: &proof{Step: "s", MAC: prove(g.key, g.challenge(), "other")}}) }, false, "its proof was wrong"},
		"before the question": {func(g *fakeInit) {
			g.say(report{Proof: g.proof(make([]byte, 32))})
			time.Sleep(20 * time.Millisecond)
			g.say(report{Proof: g.proof(g.challenge())})
		}, true, ""},
		"twice": {func(g *fakeInit) { p := g.proof(g.challenge()); g.say(report{Proof: p}); g.say(report{Proof: p}) }, true, "it repeated a proof"},
	} {
		t.Run(name, func(t *testing.T) {
			c, p, reasons := withFakeInit(t, func(g *fakeInit) { tt.play(g); g.challenge() })
			for until := time.Now().Add(time.Minute); name == "before the question" && len(reasons()) == 0 && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			err := p.Prove(timeout(t))
			if (err == nil) != tt.proved || err != nil && !errors.Is(err, ErrProof) {
				t.Errorf("prove: %v", err)
			}
			for range 500 {
				if tt.reason == "" || len(reasons()) > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if got := strings.Join(reasons(), ";"); !strings.HasPrefix(got, tt.reason) || tt.reason != "" && strings.Contains(got, ";") {
				t.Errorf("refused because %q", got)
			}
			if c.Err() != nil {
				t.Errorf("one refusal ended the session: %v", c.Err())
			}
		})
	}
}

// TestHostileFlood: refusals are reported a few times, and then the session ends, however the guest varies them.
func TestHostileFlood(t *testing.T) {
	for name, flood := range map[string]func(*fakeInit, int){
		"unsolicited":  func(g *fakeInit, i int) { g.say(report{Proof: g.proof([]byte{byte(i)})}) },
		"other steps":  func(g *fakeInit, i int) { g.say(report{Proof: &proof{Step: string(rune('a' + i%26))}}) },
		"long name":    func(g *fakeInit, i int) { g.say(report{Proof: &proof{Step: strings.Repeat("x", 40000)}}) },
		"by turns":     func(g *fakeInit, i int) { g.say(report{Proof: &proof{Step: []string{"s", "other"}[i%2], MAC: g.key}}) },
		"replay of it": func(g *fakeInit, i int) { g.say(report{Proof: g.proof(make([]byte, 32))}) },
	} {
		t.Run(name, func(t *testing.T) {
			c, p, reasons := withFakeInit(t, func(g *fakeInit) {
				for i := range 100000 {
					if flood(g, i); i > maxRefusals && i%1000 == 0 {
						time.Sleep(time.Millisecond)
					}
					select {
					case <-g.ctl.(*yamux.Stream).Session().CloseChan():
						return
					default:
					}
				}
			})
			<-c.Done()
			if !errors.Is(c.Err(), ErrHostile) || len(reasons()) != maxRefusals+1 {
				t.Errorf("%v, told %d times", c.Err(), len(reasons()))
			}
			for _, r := range reasons() {
				if len(r) > 200 {
					t.Errorf("told %d bytes", len(r))
				}
			}
			if err := p.Prove(timeout(t)); !errors.Is(err, ErrHostile) {
				t.Errorf("prove: %v", err)
			}
			if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrHostile) {
				t.Errorf("wait: %v", err)
			}
		})
	}
}

// TestHostileFrames: only answers to requests are accepted on a command's control stream.
func TestHostileFrames(t *testing.T) {
	for name, tt := range map[string]struct {
		r      report
		reason string
	}{
		"another key":        {report{Key: make([]byte, 32)}, "it asked for secrets"},
		"key and proof":      {report{Key: make([]byte, 32), Proof: &proof{Step: "s"}}, "it asked for secrets"},
		"proof and exit":     {report{Proof: &proof{Step: "s"}, Exit: &Exit{}, Mark: 1}, ""},
		"key and exit":       {report{Key: make([]byte, 32), Exit: &Exit{}, Mark: 1}, "it asked for secrets"},
		"wiped and proof":    {report{Proof: &proof{Step: "s"}, Wiped: &wiped{}}, ""},
		"wiped":              {report{Wiped: &wiped{}}, ""},
		"nothing":            {report{}, ""},
		"done":               {report{Done: true}, ""},
		"warning":            {report{Warnings: texts([]string{"x"})}, ""},
		"proof with warning": {report{Proof: &proof{Step: "s"}, Error: "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, p, reasons := withFakeInit(t, func(g *fakeInit) { g.say(tt.r) })
			if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrHostile) {
				t.Errorf("wait: %v", err)
			}
			if got := strings.Join(reasons(), ";"); !strings.HasPrefix(got, tt.reason) || tt.reason == "" && got != "" {
				t.Errorf("told %q", got)
			}
		})
	}
}

// TestHostileKeys: a guest that violates the protocol for secrets gets none.
func TestHostileKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		secrets bool
		r       report
	}{
		"for a command without":  {false, report{Key: append([]byte{9}, make([]byte, 31)...)}},
		"short":                  {true, report{Key: make([]byte, 31)}},
		"low order":              {true, report{Key: append([]byte{1}, make([]byte, 31)...)}},
		"zero":                   {true, report{Key: make([]byte, 32)}},
		"none":                   {true, report{Proof: &proof{Step: "s"}}},
		"nothing":                {true, report{}},
		"with an end":            {true, report{Key: append([]byte{9}, make([]byte, 31)...), Exit: &Exit{}, Mark: 1}},
		"proof without a key":    {false, report{Proof: &proof{Step: "s"}, Key: make([]byte, 32)}},
		"for many, of a command": {true, report{Key: make([]byte, 320)}},
	} {
		t.Run(name, func(t *testing.T) {
			var heard atomic.Int64
			c, _ := misbehaving(t, func(s *yamux.Session) {
				for i := range 2 {
					conn, err := s.Accept()
					if err != nil {
						return
					}
					var h hello
					readFrame(conn, &h, maxHello)
					if i == 1 {
						conn.Write(frameOf(tt.r))
						n, _ := io.Copy(io.Discard, conn)
						heard.Add(n)
					}
				}
			})
			cmd := Command{Step: "s", Argv: []string{"x"}}
			var told atomic.Int64
			cmd.Refused = func(string) { told.Add(1) }
			if tt.secrets {
				cmd.Secrets = []Secret{{Env: "A", Value: []byte("value")}}
			}
			p, err := c.Start(timeout(t), cmd)
			if err == nil {
				_, err = p.Wait(timeout(t))
			}
			if !errors.Is(err, ErrHostile) || told.Load() != 1 || heard.Load() != 0 {
				t.Errorf("%v, told %d times, heard %d bytes", err, told.Load(), heard.Load())
			}
		})
	}
}

// TestProofOfOneWithoutKey: a guest that proves the life of a command which no one leased is reported, then ended.
func TestProofOfOneWithoutKey(t *testing.T) {
	c, _ := misbehaving(t, func(s *yamux.Session) {
		for i := range 2 {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			var h hello
			readFrame(conn, &h, maxHello)
			for range i * (maxRefusals + 1) {
				conn.Write(frameOf(report{Proof: &proof{Step: "s", MAC: prove(nil, nil, "s")}}))
			}
		}
	})
	told := 0
	p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"x"}, Refused: func(string) { told++ }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrHostile) || told != maxRefusals+1 {
		t.Errorf("%v, told %d times", err, told)
	}
}

// TestHandOverSlow: a guest that never sends its key blocks Start only until its context ends.
func TestHandOverSlow(t *testing.T) {
	c, _ := misbehaving(t, func(s *yamux.Session) {
		for range 5 {
			s.Accept()
		}
	})
	ctx, cancel := context.WithTimeout(timeout(t), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Start(ctx, Command{Step: "s", Argv: []string{"x"}, Leased: true}); !errors.Is(err, context.DeadlineExceeded) || c.Err() != nil {
		t.Errorf("%v, %v", err, c.Err())
	}
}

// TestHandOverRefused: a guest that cannot start the command reports that instead of its key.
func TestHandOverRefused(t *testing.T) {
	c, _ := misbehaving(t, func(s *yamux.Session) {
		for i := range 2 {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			var h hello
			readFrame(conn, &h, maxHello)
			conn.Write([][]byte{frameOf(eventFrame{Mark: 1}), frameOf(report{Exit: &Exit{Code: 125}, Mark: 1, Done: true})}[i])
		}
	})
	p, err := c.Start(timeout(t), Command{Step: "s", Argv: []string{"x"}, Leased: true})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(timeout(t)); err != nil || exit.Code != 125 {
		t.Errorf("%+v, %v", exit, err)
	}
	if err := p.Prove(timeout(t)); !errors.Is(err, ErrNotLeased) && !errors.Is(err, ErrEnded) {
		t.Errorf("%v", err)
	}
}

// TestReceiveBounded: the guest bounds the size of a bundle.
func TestReceiveBounded(t *testing.T) {
	host, guest := net.Pipe()
	go func() {
		var r report
		readFrame(host, &r, maxReport)
		host.Write(binary.BigEndian.AppendUint32(nil, maxSealed+1))
	}()
	if _, _, err := receive(guest, nil); err == nil {
		t.Error("more was taken")
	}
	host.Close()
}
