package witness

import (
	"bufio"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

func loopback(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestMain also runs the witness in a child process: CUSTODY_TEST_WITNESS is its directory,
// CUSTODY_TEST_LOG the key of the log, CUSTODY_TEST_DIE the number of cosignatures that are
// durable, and not sent, after which it kills itself with SIGKILL.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CUSTODY_TEST_WITNESS"); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	signer, verifier, err := Load(dir)
	if err != nil {
		return err
	}
	log, err := note.NewVerifier(os.Getenv("CUSTODY_TEST_LOG"))
	if err != nil {
		return err
	}
	w, err := New(Config{Dir: dir, Signer: signer, Verifier: verifier, Logs: []note.Verifier{log}, PerSecond: 1e6})
	if err != nil {
		return err
	}
	die, _ := strconv.Atoi(os.Getenv("CUSTODY_TEST_DIE"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return http.Serve(l, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.ServeHTTP(&dying{ResponseWriter: rw, left: &die}, req)
	}))
}

// dying kills the process when the body of an answer with status 200 is about to be written.
type dying struct {
	http.ResponseWriter
	left   *int
	status int
}

func (d *dying) WriteHeader(status int) { d.status = status; d.ResponseWriter.WriteHeader(status) }

func (d *dying) Write(p []byte) (int, error) {
	if d.status == 0 && *d.left > 0 {
		if *d.left--; *d.left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	return d.ResponseWriter.Write(p)
}

// spawn starts the child; wait returns when it has ended.
func spawn(t *testing.T, dir, vkey string, die int) (url string, p *os.Process, wait func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CUSTODY_TEST_WITNESS="+dir, "CUSTODY_TEST_LOG="+vkey, fmt.Sprint("CUSTODY_TEST_DIE=", die))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { cmd.Wait(); close(dead) }()
	wait = func() { <-dead }
	t.Cleanup(func() { cmd.Process.Kill(); wait() })
	if err != nil {
		t.Fatalf("the witness did not start: %v", err)
	}
	return strings.TrimSpace(line), cmd.Process, wait
}

// try posts, and returns status 0 if the witness dies during the request.
func try(url, body string) reply {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Post(url+"/add-checkpoint", "", strings.NewReader(body))
	if err != nil {
		return reply{}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}
	}
	return reply{resp.StatusCode, resp.Header.Get("Content-Type"), string(data)}
}

// vkeyOf makes a log and returns its verifier key too, since testLog stores only the parsed key.
func vkeyOf(t *testing.T, name string) (*testLog, string) {
	t.Helper()
	skey, vkey, err := note.GenerateKey(crand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	l := &testLog{name: name}
	if l.signer, err = note.NewSigner(skey); err != nil {
		t.Fatal(err)
	}
	l.key, err = note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return l, vkey
}

// TestKilledBeforeAnswer: the process dies when the cosignature is durable and not sent. The
// log asks again and gets it; a fork from the old size gets no cosignature.
func TestKilledBeforeAnswer(t *testing.T) {
	l, vkey := vkeyOf(t, "example.com/log")
	dir, v := newWitness(t, "w")
	url, _, wait := spawn(t, dir, vkey, 2)
	l.add(t, "a", "b", "c")
	other := l.fork()
	l.add(t, "d")
	other.add(t, "D")
	cosigned(t, try(url, l.request(t, 0, 3)), l.checkpoint(t, 3), v)
	if r := try(url, l.request(t, 3, 4)); r.status != 0 {
		t.Fatalf("it did not die: %v", r)
	}
	wait()
	url, _, _ = spawn(t, dir, vkey, 0)
	refused(t, try(url, other.request(t, 3, 4)), http.StatusConflict)
	refused(t, try(url, other.request(t, 4, 4)), http.StatusConflict)
	behind := try(url, l.request(t, 3, 4))
	if behind.status != http.StatusConflict || behind.body != "4\n" {
		t.Errorf("answers %v", behind)
	}
	cosigned(t, try(url, l.request(t, 4, 4)), l.checkpoint(t, 4), v)
}

// TestKilledAnywhere kills the witness at random moments while a log and its fork both request
// cosignatures. All its cosignatures must be of one history.
func TestKilledAnywhere(t *testing.T) {
	rounds := 20
	if n, err := strconv.Atoi(os.Getenv("CUSTODY_ROUNDS")); err == nil {
		rounds = n
	}
	l, vkey := vkeyOf(t, "example.com/log")
	dir, v := newWitness(t, "w")
	cosignedTo := int64(0) // the largest size of l that was answered with 200
	for round := range rounds {
		url, p, wait := spawn(t, dir, vkey, 0)
		time.AfterFunc(time.Duration(rand.Int64N(int64(30*time.Millisecond))), func() { p.Kill() })
		for alive := true; alive; {
			other := l.fork()
			l.add(t, fmt.Sprint("entry ", l.n))
			other.add(t, fmt.Sprint("lie ", l.n), "more")
			old := cosignedTo
			for range 2 { // again with the size in the witness's answer
				r := try(url, l.request(t, old, l.n))
				if alive = r.status != 0; r.status == http.StatusOK {
					cosigned(t, r, l.checkpoint(t, l.n), v)
					cosignedTo = l.n
				}
				if r.status != http.StatusConflict {
					break
				}
				told, err := strconv.ParseInt(strings.TrimSpace(r.body), 10, 64)
				if err != nil || told < cosignedTo || told > l.n {
					t.Fatalf("round %d: the witness remembers %q, it has cosigned %d", round, r.body, cosignedTo)
				}
				old = told
			}
			if cosignedTo == l.n { // the fork differs from here on
				for _, size := range []int64{l.n, l.n + 1} {
					if r := try(url, other.request(t, cosignedTo, size)); r.status == http.StatusOK {
						t.Fatalf("round %d: a fork was cosigned at %d", round, size)
					}
				}
			}
		}
		wait()
	}
	if cosignedTo == 0 {
		t.Fatal("no checkpoint was cosigned")
	}
}
