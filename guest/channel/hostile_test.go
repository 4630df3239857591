package channel

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/custody-project/custody/audit"
)

func frameOf(v any) []byte {
	b, err := encodeFrame(v, 64<<20)
	if err != nil {
		panic(err)
	}
	return b
}

// session plays a guest that implements yamux correctly and then misbehaves in play.
func misbehaving(t *testing.T, play func(*yamux.Session)) (*Client, *int) {
	t.Helper()
	host, guest := socketPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		AwaitWake(guest)
		SendAwake(guest, Awake{OK: true})
		s, err := yamux.Server(guest, yamuxConfig())
		if err != nil {
			return
		}
		defer s.Close()
		play(s)
		<-s.CloseChan()
	}()
	events := 0
	c, err := Connect(timeout(t), host, Wake{Scratch: 1 << 20}, func(context.Context, *audit.Event) error { events++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	c.assume()
	t.Cleanup(func() { c.Close(); <-done })
	return c, &events
}

func TestHostileEvents(t *testing.T) {
	exec := func(change func(*audit.Event)) []byte {
		e := execEvent("", 1)
		change(e)
		return frameOf(eventFrame{Event: e})
	}
	for name, b := range map[string][]byte{
		"garbage":         []byte("\x00\x00\x00\x05hello"),
		"too long":        {0xff, 0xff, 0xff, 0xff},
		"empty frame":     frameOf(eventFrame{}),
		"event and mark":  frameOf(eventFrame{Event: execEvent("", 1), Mark: 1}),
		"mark again":      append(frameOf(eventFrame{Mark: 2}), frameOf(eventFrame{Mark: 2})...),
		"other kind":      frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindSecret, Secret: &audit.Secret{Name: "x"}}}),
		"output":          frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindOutput, Output: &audit.Output{}}}),
		"finding":         frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindFinding, Finding: &audit.Finding{}}}),
		"no payload":      frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindExec}}),
		"other payload":   exec(func(e *audit.Event) { e.Kind = audit.KindExit }),
		"two payloads":    exec(func(e *audit.Event) { e.VM = &audit.VM{Op: "destroy"} }),
		"unknown step":    exec(func(e *audit.Event) { e.Step = "never started" }),
		"many arguments":  exec(func(e *audit.Event) { e.Exec.Argv = make([]audit.Text, maxArgs+1) }),
		"newline in proc": exec(func(e *audit.Event) { e.Exec.Proc = "a\nb" }),
		"long proc":       exec(func(e *audit.Event) { e.Exec.Proc = strings.Repeat("p", 1000) }),
		"bad digest":      exec(func(e *audit.Event) { e.Exec.ArgvSHA256 = strings.Repeat("G", 64) }),
		"year -1":         []byte(nil),
		"flow verdict":    frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowOpen}}}),
		"file operation":  frameOf(eventFrame{Event: &audit.Event{Kind: audit.KindFile, File: &audit.File{Op: "format"}}}),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "year -1" {
				raw := `{"event":{"kind":"exec","guest_time":{"time":"0000-01-01T00:00:00+23:59"},"exec":{"argv":[]}}}`
				b = append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
			}
			c, events := misbehaving(t, func(s *yamux.Session) {
				if conn, err := s.Accept(); err == nil {
					var h hello
					readFrame(conn, &h, maxHello)
					conn.Write(b)
				}
			})
			select {
			case <-c.Done():
			case <-time.After(time.Minute):
				t.Fatal("session goes on")
			}
			if !errors.Is(c.Err(), ErrHostile) || *events != 0 {
				t.Fatalf("%v, %d events", c.Err(), *events)
			}
		})
	}
}

func TestHostileReports(t *testing.T) {
	for name, b := range map[string][]byte{
		"no exit":      frameOf(report{Done: true}),
		"no mark":      frameOf(report{Exit: &Exit{}}),
		"code 256":     frameOf(report{Exit: &Exit{Code: 256}, Mark: 1}),
		"signal -1":    frameOf(report{Exit: &Exit{Signal: -1}, Mark: 1}),
		"not an exit":  []byte("\x00\x00\x00\x02[]"),
		"over the top": {0x7f, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := misbehaving(t, func(s *yamux.Session) {
				for i := range 2 {
					conn, err := s.Accept()
					if err != nil {
						return
					}
					var h hello
					readFrame(conn, &h, maxHello)
					if i == 1 {
						conn.Write(b)
					}
				}
			})
			p, err := c.Start(timeout(t), Command{Argv: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(timeout(t)); !errors.Is(err, ErrHostile) {
				t.Fatalf("%v", err)
			}
		})
	}
}

// A guest that opens streams, or pings, costs an ordinary yamux memory or goroutines. The guard ends it.
func TestGuard(t *testing.T) {
	head := func(version, kind byte, flags uint16, id, length uint32) (h [frameHead]byte) {
		h[0], h[1] = version, kind
		binary.BigEndian.PutUint16(h[2:], flags)
		binary.BigEndian.PutUint32(h[4:], id)
		binary.BigEndian.PutUint32(h[8:], length)
		return h
	}
	for name, tt := range map[string]struct {
		h  [frameHead]byte
		ok bool
	}{
		"data":         {head(0, 0, 0, 1, 10), true},
		"window":       {head(0, 1, 2, 3, 1<<20), true},
		"goodbye":      {head(0, 3, 0, 0, 0), true},
		"open":         {head(0, 1, flagSYN, 2, 0), false},
		"open as host": {head(0, 1, flagSYN, 1, 0), false},
		"even":         {head(0, 0, 0, 2, 0), false},
		"ping":         {head(0, 2, flagSYN, 0, 0), false},
		"pong":         {head(0, 2, 2, 0, 0), false},
		"version":      {head(1, 0, 0, 1, 0), false},
		"type":         {head(0, 9, 0, 1, 0), false},
		"too much":     {head(0, 0, 0, 1, window+1), false},
	} {
		if err := checkFrame(tt.h); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, _ := misbehaving(t, func(s *yamux.Session) { s.Accept(); s.Open() })
	<-c.Done()
	if c.Err() == nil {
		t.Error("a guest may open streams")
	}
}

func TestHostileHandshake(t *testing.T) {
	for name, answer := range map[string]string{
		"garbage": "\x00\xff\n", "refusal": `{"ok":false,"error":"no"}` + "\n", "nothing": "", "half": `{"ok":`,
		"more behind": `{"ok":true}` + "\nxx", "endless": strings.Repeat("x", maxAwake+10),
	} {
		host, guest := socketPair(t)
		go func() {
			AwaitWake(guest)
			io.WriteString(guest, answer)
			guest.Close()
		}()
		if c, err := Connect(timeout(t), host, Wake{}, nil); err == nil {
			c.Close()
			t.Errorf("%s: connected", name)
		}
	}
}

// FuzzSession connects to a guest that answers the wake and then sends arbitrary bytes.
func FuzzSession(f *testing.F) {
	data := func(id uint32, b []byte) []byte {
		h := make([]byte, frameHead, frameHead+len(b))
		binary.BigEndian.PutUint32(h[4:], id)
		binary.BigEndian.PutUint32(h[8:], uint32(len(b)))
		return append(h, b...)
	}
	f.Add([]byte{})
	f.Add(data(1, frameOf(eventFrame{Event: execEvent("s", 1)})))
	f.Add(append(data(1, frameOf(eventFrame{Mark: 1})), data(3, frameOf(report{Exit: &Exit{}, Mark: 1, Done: true}))...))
	f.Add(append(data(7, []byte("output")), data(3, frameOf(report{Exit: &Exit{Code: 300}, Mark: 1}))...))
	f.Add(data(3, append(frameOf(report{Key: bytes.Repeat([]byte{9}, 32)}), frameOf(report{Proof: &proof{Step: "s", MAC: make([]byte, 32)}})...)))
	f.Add(append(data(3, frameOf(report{Wiped: &wiped{}})), data(3, frameOf(report{Key: make([]byte, 32)}))...))
	f.Add([]byte("\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		host, guest := socketPair(t)
		go func() {
			AwaitWake(guest)
			SendAwake(guest, Awake{OK: true})
			hear := make(chan struct{})
			go func() { io.Copy(io.Discard, guest); close(hear) }()
			guest.Write(b)
			time.Sleep(time.Millisecond)
			guest.Close()
			<-hear
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := Connect(ctx, host, Wake{Scratch: 1 << 20}, nil)
		if err == nil {
			defer c.Close()
			c.assume()
			if p, err := c.Start(ctx, Command{Step: "s", Argv: []string{"x"}, Leased: len(b)%2 == 0}); err == nil {
				drain(p)
				if p.Prove(ctx) == nil {
					t.Error("a guest without a key has proved something")
				}
				p.Wipe(ctx)
				p.Wait(ctx)
			}
			c.CopyOut(ctx, NewDestinationDir(t.TempDir(), Protect{Limit: 1 << 20}), Out{})
		}
		if ctx.Err() != nil {
			t.Fatal("the session hangs though the guest is gone")
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
			t.Fatalf("%d bytes from the guest made the host allocate %d", len(b), grown)
		}
	})
}

func FuzzEvent(f *testing.F) {
	for _, e := range []*audit.Event{
		execEvent("s", 1),
		{Kind: audit.KindExit, Exit: &audit.Exit{Proc: "p"}},
		{Kind: audit.KindFile, File: &audit.File{Op: audit.FileWrite, Path: "/x", SHA256: strings.Repeat("0", 64)}},
		{Kind: audit.KindFlow, Flow: &audit.Flow{State: audit.FlowAttempt, Proto: "tcp"}},
		{Kind: audit.KindGap, Gap: &audit.Gap{Stage: "kernel_ring", Count: 3, Cause: "full"}},
	} {
		f.Add(frameOf(eventFrame{Event: e}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var ef eventFrame
		if readFrame(bytes.NewReader(b), &ef, maxEvent) != nil || ef.Event == nil {
			return
		}
		now := time.Now()
		if admit(ef.Event, now, 0, func(s string) bool { return s == "s" }) != nil {
			return
		}
		e := ef.Event
		if e.Observer != audit.Guest || !e.Time.Equal(now) || e.Output != nil || e.Secret != nil || e.VM != nil || e.Lifecycle != nil || e.Finding != nil {
			t.Fatalf("admitted %+v", e)
		}
		if _, err := json.Marshal(e); err != nil {
			t.Fatalf("admitted an event that cannot be recorded: %v", err)
		}
	})
}

// TestKindsOfTheGuest: of the table's kinds the host takes those that a guest observes, and has a check for each.
func TestKindsOfTheGuest(t *testing.T) {
	valid := map[audit.Kind]func(*audit.Event){
		audit.KindFile: func(e *audit.Event) { e.File.Op = audit.FileRead },
		audit.KindFlow: func(e *audit.Event) { e.Flow.State = audit.FlowAttempt },
		audit.KindGap:  func(e *audit.Event) { e.Gap.Stage = audit.StageKernelRing },
	}
	for _, k := range audit.Kinds() {
		e := audit.Event{Kind: k}
		e.SetPayload()
		if set := valid[k]; set != nil {
			set(&e)
		}
		if err := checkPayload(&e); (err == nil) != k.ObservedBy(audit.Guest) {
			t.Errorf("kind %s: %v, and the guest observes it: %v", k, err, k.ObservedBy(audit.Guest))
		}
	}
	for _, s := range audit.Stages() {
		e := audit.Event{Kind: audit.KindGap, Gap: &audit.Gap{Stage: s.Stage}}
		if err := checkPayload(&e); (err == nil) != (s.Observer == audit.Guest) {
			t.Errorf("gap of stage %s: %v, and %s declares it", s.Stage, err, s.Observer)
		}
	}
}
