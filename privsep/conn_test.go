package privsep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends returns both ends of a connection. Only the server end reads, with these handlers; raw is the other end's socket.
func ends(t testing.TB, handlers map[string]Handler) (server *Conn, raw *net.UnixConn, ran <-chan error) {
	t.Helper()
	here, there, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	raw, err = Socket(there)
	if err != nil {
		t.Fatal(err)
	}
	server = New(here, handlers)
	done := make(chan error, 1)
	go func() { done <- server.Run(context.Background()) }()
	t.Cleanup(func() { raw.Close() })
	return server, raw, done
}

// client returns a connected client of a server with these handlers.
func client(t testing.TB, handlers map[string]Handler) *Conn {
	t.Helper()
	_, raw, ran := ends(t, handlers)
	c := New(raw, nil)
	done := make(chan error, 1)
	go func() { done <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		c.Close()
		if err := errors.Join(<-done, <-ran); err != nil {
			t.Error(err)
		}
	})
	return c
}

type sum struct{ A, B int }

var arithmetic = map[string]Handler{
	"add": Handle(func(_ context.Context, s sum) (any, []*os.File, error) { return s.A + s.B, nil, nil }),
	"fail": Handle(func(context.Context, struct{}) (any, []*os.File, error) {
		return nil, nil, errors.New("it does not work: try another")
	}),
	"large": Handle(func(context.Context, struct{}) (any, []*os.File, error) {
		return strings.Repeat("x", MaxMessage), nil, nil
	}),
	"pipe": Handle(func(context.Context, struct{}) (any, []*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		_, err = w.WriteString("through a descriptor")
		return struct{}{}, []*os.File{r}, errors.Join(err, w.Close())
	}),
	"read": func(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
		defer closeAll(files)
		b, err := io.ReadAll(files[0])
		return string(b), nil, err
	},
}

func TestCall(t *testing.T) {
	c := client(t, arithmetic)
	ctx := t.Context()
	var got int
	if _, err := c.Call(ctx, "add", sum{2, 3}, &got); err != nil || got != 5 {
		t.Errorf("2+3 is %d, %v", got, err)
	}
	for name, want := range map[string]string{"fail": "it does not work: try another", "large": "the limit is 65536"} {
		_, err := c.Call(ctx, name, struct{}{}, nil)
		if e := new(RemoteError); !errors.As(err, &e) || !strings.Contains(e.Text, want) || e.Call != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Call(ctx, "add", map[string]int{"C": 1}, nil); err == nil || !strings.Contains(err.Error(), "unknown field") {
		t.Errorf("an unknown field: %v", err)
	}
	if _, err := c.Call(ctx, "add", strings.Repeat("x", MaxMessage), nil); err == nil || !strings.Contains(err.Error(), "the limit is 65536") {
		t.Errorf("large arguments: %v", err)
	}
}

// advised is an error with a hint.
type advised struct{ error }

func (advised) Hint() string { return strings.Repeat("hint", MaxMessage) }

// TestFailures: a failure keeps its kind, if both ends know it, and its hint, as far as it fits.
func TestFailures(t *testing.T) {
	server, raw, ran := ends(t, nil)
	c := New(raw, nil)
	kinds := Kinds{"end": io.EOF, "closed": os.ErrClosed}
	server.Kinds, c.Kinds = kinds, Kinds{"end": io.EOF}
	for _, err := range []error{errors.New(strings.Repeat("\x00", MaxMessage)), advised{io.EOF}, fmt.Errorf("read: %w", io.EOF), os.ErrClosed} {
		m := server.failure(1, err)
		b, failed := json.Marshal(m)
		if failed != nil || len(b) > MaxMessage {
			t.Errorf("%.20v: %d bytes: %v", err, len(b), failed)
		}
		_, got := c.decode(answer{message: m}, "x", nil)
		if errors.Is(got, io.EOF) != errors.Is(err, io.EOF) || errors.Is(got, os.ErrClosed) {
			t.Errorf("%.20v became %.20v", err, got)
		}
		hint := got.(*RemoteError).Hint()
		if _, is := err.(advised); is != strings.HasPrefix(hint, "hinthint") {
			t.Errorf("%.20v: hint %.20q", err, hint)
		}
	}
	server.Close()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// TestConcurrentCalls: each of many concurrent calls gets its own result.
func TestConcurrentCalls(t *testing.T) {
	c := client(t, arithmetic)
	var callers sync.WaitGroup
	for i := range 500 {
		callers.Go(func() {
			var got int
			if _, err := c.Call(t.Context(), "add", sum{i, i}, &got); err != nil || got != 2*i {
				t.Errorf("%d: %d, %v", i, got, err)
			}
		})
	}
	callers.Wait()
}

// TestFiles: descriptors reach the other process in both directions, and none is left open here.
func TestFiles(t *testing.T) {
	c := client(t, arithmetic)
	before := descriptors(t)
	for range 50 {
		files, err := c.Call(t.Context(), "pipe", struct{}{}, nil)
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		var got string
		_, err = c.Call(t.Context(), "read", struct{}{}, &got, files...)
		files[0].Close()
		if err != nil || got != "through a descriptor" {
			t.Fatalf("%q, %v", got, err)
		}
		if _, err := c.Call(t.Context(), "add", sum{}, nil, os.Stdin); err == nil || !strings.Contains(err.Error(), "takes no descriptors") {
			t.Fatalf("a call that takes no descriptors: %v", err)
		}
	}
	awaitClosed(t, before)
}

// awaitClosed waits until no more descriptors are open than before. Until then the test's time limit runs.
func awaitClosed(t *testing.T, before int) {
	t.Helper()
	for descriptors(t) > before {
		time.Sleep(time.Millisecond)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestPeerEnds: calls that wait for a process that ends fail with ErrClosed, and the context of its calls ends.
func TestPeerEnds(t *testing.T) {
	started, stopped := make(chan struct{}), make(chan struct{})
	_, raw, ran := ends(t, map[string]Handler{"wait": func(ctx context.Context, _ []byte, _ []*os.File) (any, []*os.File, error) {
		close(started)
		<-ctx.Done()
		close(stopped)
		return nil, nil, ctx.Err()
	}})
	c := New(raw, nil)
	go c.Run(context.Background())
	failed := make(chan error)
	go func() {
		_, err := c.Call(context.Background(), "wait", struct{}{}, nil)
		failed <- err
	}()
	<-started
	c.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	<-stopped
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if _, err := c.Call(context.Background(), "wait", struct{}{}, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// TestGivenUp: the result of a call whose caller has given up is discarded with its descriptors.
func TestGivenUp(t *testing.T) {
	hold := make(chan struct{})
	c := client(t, map[string]Handler{"slow": func(context.Context, []byte, []*os.File) (any, []*os.File, error) {
		<-hold
		r, w, err := os.Pipe()
		return struct{}{}, []*os.File{r, w}, err
	}, "add": arithmetic["add"]})
	before := descriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Call(ctx, "slow", struct{}{}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(hold)
	for range 20 { // results after it arrive after it
		if _, err := c.Call(t.Context(), "add", sum{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	awaitClosed(t, before)
}

// TestViolations: a message that violates the protocol ends the connection with an error that names the violation.
func TestViolations(t *testing.T) {
	deep := strings.Repeat("[", 20_000)
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":         {"hello", "invalid character"},
		"an array":        {"[]", "cannot unmarshal"},
		"two objects":     {`{"id":1,"call":"add","body":{}} {}`, "more than one value"},
		"unknown field":   {`{"id":1,"call":"add","body":{},"uid":0}`, "unknown field"},
		"unknown call":    {`{"id":1,"call":"reboot","body":{}}`, `there is no call "reboot"`},
		"no id":           {`{"call":"add","body":{}}`, "no id"},
		"negative id":     {`{"id":-1,"call":"add","body":{}}`, "cannot unmarshal"},
		"no body":         {`{"id":1,"call":"add"}`, "no body"},
		"unasked result":  {`{"id":5,"body":{}}`, "which was not made"},
		"call and result": {`{"id":1,"call":"add","error":"x"}`, "both"},
		"deep":            {`{"id":1,"call":"add","body":` + deep + `}`, "exceeded max depth"},
		"long":            {strings.Repeat(" ", MaxMessage) + "{}", "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, raw, ran := ends(t, arithmetic)
			if _, err := raw.Write([]byte(c.text)); err != nil {
				t.Fatal(err)
			}
			if err := <-ran; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if n, err := raw.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("the connection is open: %d, %v", n, err)
			}
		})
	}
}

// TestTooManyFiles: descriptors beyond the limit end the connection, and are closed.
func TestTooManyFiles(t *testing.T) {
	_, raw, ran := ends(t, arithmetic)
	before := descriptors(t)
	fds := make([]int, MaxFiles+4)
	_, _, err := raw.WriteMsgUnix([]byte(`{"id":1,"call":"read","body":{}}`), unix.UnixRights(fds...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err == nil || !strings.Contains(err.Error(), "more than 32 descriptors") {
		t.Error(err)
	}
	awaitClosed(t, before)
}

// TestFlood: a process that floods the other one with calls has at most maxCalls of them running.
func TestFlood(t *testing.T) {
	var running, most atomic.Int64
	release := make(chan struct{})
	_, raw, ran := ends(t, map[string]Handler{"wait": func(context.Context, []byte, []*os.File) (any, []*os.File, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		<-release
		return struct{}{}, nil, nil
	}})
	sent := make(chan error, 1)
	const calls = 5000
	go func() {
		for i := range calls {
			if _, err := fmt.Fprintf(raw, `{"id":%d,"call":"wait","body":{}}`, i+1); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for running.Load() < maxCalls {
	}
	close(release)
	seen := 0
	for buf := make([]byte, MaxMessage); seen < calls; seen++ {
		n, err := raw.Read(buf)
		var m message
		if err == nil {
			err = json.Unmarshal(buf[:n], &m)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if most.Load() > maxCalls {
		t.Errorf("%d calls ran concurrently", most.Load())
	}
	raw.Close()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// TestCloseWhileFlooded: a process that has made more calls than can be carried out, which all wait, does not keep the other one from ending.
func TestCloseWhileFlooded(t *testing.T) {
	var running atomic.Int64
	server, raw, ran := ends(t, map[string]Handler{"wait": func(ctx context.Context, _ []byte, _ []*os.File) (any, []*os.File, error) {
		running.Add(1)
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}})
	for i := range maxCalls + 10 {
		if _, err := fmt.Fprintf(raw, `{"id":%d,"call":"wait","body":{}}`, i+1); err != nil {
			t.Fatal(err)
		}
	}
	for running.Load() < maxCalls {
		time.Sleep(time.Millisecond)
	}
	server.Close()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if n := running.Load(); n != maxCalls {
		t.Errorf("%d calls were carried out", n)
	}
}

// TestSocket: a descriptor that is no end of a pair is refused.
func TestSocket(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := Socket(r); err == nil {
		t.Error("a pipe is accepted")
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	if _, err := Socket(os.NewFile(uintptr(fds[0]), "stream")); err == nil || !strings.Contains(err.Error(), "no socket of custody") {
		t.Error(err)
	}
}

// FuzzParse: a message that is accepted has the same meaning after it was encoded again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"id":1,"call":"add","body":{"A":1}}`, `{"id":2,"error":"no"}`, `{"id":3,"body":null}`, `{"id":1}`, `{}`, `{"ID":1,"body":{}}`,
		`{"id":2,"error":"no","hint":"try again","kind":"full"}`, `{"id":2,"hint":"try again","body":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			return
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		n, err := parse(again)
		if err != nil || n.ID != m.ID || n.Call != m.Call || n.Error != m.Error || n.Hint != m.Hint || n.Kind != m.Kind {
			t.Errorf("%q became %q: %v", b, again, err)
		}
	})
}
