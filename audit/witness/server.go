package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	f_note "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/durable"
	"github.com/custody-project/custody/internal/regular"
)

// Config names a witness and the logs whose checkpoints it cosigns.
type Config struct {
	// Dir stores what the witness has cosigned; Generate makes it. No other process may use it concurrently.
	Dir string
	// Signer makes cosignature/v1 signatures (C2SP tlog-cosignature), Verifier verifies them.
	Signer   note.Signer
	Verifier note.Verifier
	// Older are previous keys of this witness, which may have signed its state.
	Older []note.Verifier
	// Logs are the keys of the logs. A key's name is the log's origin; several keys with one name
	// belong to one log whose key was rotated.
	Logs []note.Verifier
	// Readers read the entries of logs, by origin, before a checkpoint over them is cosigned. The witness does not read
	// the entries of other logs.
	Readers map[string]Reader
	// PerSecond is the rate of requests per address, 0: 50. IPv6 addresses are grouped by /64.
	PerSecond float64
	// Log receives cosignatures and refusals; nil: slog's default.
	Log *slog.Logger
}

// Witness cosigns checkpoints that extend those it has cosigned before. It is an http.Handler
// for C2SP tlog-witness. It is safe for concurrent use.
//
//	request --parse--> known log? --> signed by it? --> old size is the remembered one?
//	  400               404            403               409, with the remembered size
//	--> same size: same root? --> extends it? --> sign --> remember, synced --> answer 200
//	    409                       422
//
// Before it signs, it calls the log's Reader: 422 if the Reader objects, 503 if it could not read the entries.
type Witness struct {
	c     Config
	logs  map[string]*watched
	lock  *os.File
	limit *limiter
	turns chan struct{} // bounds the requests that are handled concurrently
}

// watched is one log.
type watched struct {
	origin string
	keys   note.Verifiers
	path   string // of the file with its last checkpoint

	mu   sync.Mutex // guards last, and the file at path
	last remembered
}

// remembered is the last checkpoint that this witness has cosigned; zero if there is none.
type remembered struct {
	head
	at time.Time // of the cosignature
}

// atOnce bounds the requests that are handled concurrently; others get 503.
const atOnce = 64

// New returns a witness with the state in c.Dir. An error wraps ErrState if
// the state is missing or invalid: a witness that forgets can be made to sign a fork.
func New(c Config) (*Witness, error) {
	if c.Signer == nil || c.Verifier == nil || c.Signer.KeyHash() != c.Verifier.KeyHash() || c.Signer.Name() != c.Verifier.Name() {
		return nil, errors.New("witness: signer and verifier have different keys")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.PerSecond == 0 {
		c.PerSecond = 50
	}
	limit, err := newLimiter(c.PerSecond)
	if err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	w := &Witness{c: c, limit: limit, logs: map[string]*watched{}, turns: make(chan struct{}, atOnce)}
	if err := w.open(); err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	return w, nil
}

func (w *Witness) open() (err error) {
	if w.lock, err = lockState(w.c.Dir); err != nil {
		return err
	}
	keys := map[string][]note.Verifier{}
	for _, v := range w.c.Logs {
		keys[v.Name()] = append(keys[v.Name()], v)
	}
	for origin, list := range keys {
		l := &watched{origin: origin, keys: note.VerifierList(list...), path: statePath(w.c.Dir, origin)}
		if l.last, err = w.load(l); err != nil {
			w.lock.Close()
			return err
		}
		w.logs[origin] = l
	}
	return nil
}

// Close releases the state. Requests must have ended.
func (w *Witness) Close() error { return w.lock.Close() }

// refusal is an answer other than 200.
type refusal struct {
	status int
	why    string
	size   *uint64 // the remembered size, which is the complete answer
}

func (r *refusal) Error() string { return r.why }

func refuse(status int, format string, args ...any) error {
	return &refusal{status: status, why: fmt.Sprintf(format, args...)}
}

// add checks a request and returns the signature line of the answer. An error that is not a refusal
// is a failure of the witness.
func (w *Witness) add(ctx context.Context, body []byte) (string, error) {
	r, err := parseRequest(body)
	if err != nil {
		return "", refuse(http.StatusBadRequest, "%v", err)
	}
	l, ok := w.logs[r.head.origin]
	if !ok {
		return "", refuse(http.StatusNotFound, "this witness is not configured for the log %.80q", r.head.origin)
	}
	n, err := note.Open(r.signed, l.keys)
	if err != nil {
		return "", refuse(http.StatusForbidden, "no signature is by a key of the log %.80q that this witness knows", r.head.origin)
	}
	if r.old > r.head.size {
		return "", refuse(http.StatusBadRequest, "old size %d is larger than the checkpoint's, %d", r.old, r.head.size)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(r); err != nil {
		if lied := (&refusal{}); errors.As(err, &lied) && lied.status == http.StatusConflict && lied.size == nil {
			w.keepEvidence(l, r.signed)
		}
		return "", err
	}
	if err := w.read(ctx, l, r.signed); err != nil {
		return "", err
	}
	return w.cosign(l, n, r.head)
}

// Reader reads the entries of one log. The witness calls it from one goroutine at a time.
type Reader interface {
	// Read reads the entries under a checkpoint which its log has signed and which need not be published yet. An error
	// that wraps ErrObjection means that no witness should cosign it, any other that the entries could not be read.
	Read(ctx context.Context, signed []byte) error
}

// ErrObjection: a Reader found that the log violates its rules.
var ErrObjection = errors.New("the log's entries contradict each other, or their root")

// readTimeout bounds a Reader's time: the log waits 5 s for its cosignature.
const readTimeout = 4 * time.Second

// read calls the log's Reader, if there is one.
func (w *Witness) read(ctx context.Context, l *watched, signed []byte) error {
	reader := w.c.Readers[l.origin]
	if reader == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := reader.Read(ctx, signed)
	switch {
	case errors.Is(err, ErrObjection):
		w.keepEvidence(l, signed)
		return refuse(http.StatusUnprocessableEntity, "%v", err)
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "the log's entries cannot be read: %v", err)
	}
	return nil
}

// check checks that r extends the remembered checkpoint.
func (l *watched) check(r request) error {
	if r.old != l.last.size {
		size := l.last.size
		return &refusal{status: http.StatusConflict, why: fmt.Sprintf("old size %d, remembered %d", r.old, size), size: &size}
	}
	known := l.last.root
	if r.old == 0 {
		known = [hashSize]byte(rfc6962.DefaultHasher.EmptyRoot())
	}
	switch {
	case r.old == r.head.size && r.head.root != known:
		return refuse(http.StatusConflict, "another root was cosigned for size %d", r.old)
	case r.old == 0 || r.old == r.head.size:
		if len(r.proof) > 0 {
			return refuse(http.StatusUnprocessableEntity, "the sizes %d and %d need no proof", r.old, r.head.size)
		}
		return nil
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, r.old, r.head.size, r.proof, known[:], r.head.root[:]); err != nil {
		return refuse(http.StatusUnprocessableEntity, "it does not extend the %d entries that were cosigned", r.old)
	}
	return nil
}

// cosign signs, stores the checkpoint and then returns the signature. The caller holds l.mu.
func (w *Witness) cosign(l *watched, n *note.Note, h head) (string, error) {
	signed, err := note.Sign(&note.Note{Text: n.Text, Sigs: n.Sigs}, w.c.Signer)
	if err != nil {
		return "", err
	}
	line, at, err := cosignature(signed, note.VerifierList(w.c.Verifier))
	if err != nil {
		return "", err
	}
	if at.Before(l.last.at) { // a cosignature states that no larger checkpoint was seen until its time
		return "", fmt.Errorf("the clock went back: it is %s, the last cosignature is of %s", at.UTC(), l.last.at.UTC())
	}
	if err := durable.Replace(l.path, signed, 0o600); err != nil {
		return "", err
	}
	l.last = remembered{head: h, at: at}
	return line, nil
}

// cosignature returns the witness's own signature line of a note.
func cosignature(signed []byte, key note.Verifiers) (line string, at time.Time, err error) {
	n, err := note.Open(signed, key)
	if err != nil {
		return "", at, err
	}
	sig := n.Sigs[0]
	if at, err = f_note.CoSigV1Timestamp(sig); err != nil {
		return "", at, err
	}
	return fmt.Sprintf("— %s %s\n", sig.Name, sig.Base64), at, nil
}

// keepEvidence stores a checkpoint that its log has signed beside another of the same size:
// together they prove the fork. It keeps only a few.
func (w *Witness) keepEvidence(l *watched, signed []byte) {
	for i := range 4 {
		path := fmt.Sprintf("%s.conflict%d", l.path, i)
		if have, err := regular.ReadFile(path); err == nil && string(have) == string(signed) {
			return
		} else if err == nil {
			continue
		}
		if err := durable.Replace(path, signed, 0o600); err != nil {
			w.c.Log.Error("witness cannot store a conflicting checkpoint", "log", l.origin, "error", err)
		}
		return
	}
}

// lockState locks the state's directory for this process.
func lockState(dir string) (*os.File, error) {
	if info, err := os.Stat(filepath.Join(dir, stateDir)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%w: %s has no folder %s: a witness that lost its state must not continue under the same key", ErrState, dir, stateDir)
	}
	f, err := regular.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another process is this witness: lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// ServeHTTP implements http.Handler: POST add-checkpoint.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	if req.URL.Path != "/add-checkpoint" {
		http.Error(rw, "this is a witness (C2SP tlog-witness): POST add-checkpoint", http.StatusNotFound)
		return
	}
	if req.Method != http.MethodPost {
		rw.Header().Set("Allow", http.MethodPost)
		http.Error(rw, "add-checkpoint requires POST", http.StatusMethodNotAllowed)
		return
	}
	if !w.limit.allow(req.RemoteAddr) {
		rw.Header().Set("Retry-After", "1")
		http.Error(rw, "too many requests from this address", http.StatusTooManyRequests)
		return
	}
	body, ok := readBody(rw, req)
	if !ok {
		return
	}
	select {
	case w.turns <- struct{}{}:
		defer func() { <-w.turns }()
	default:
		rw.Header().Set("Retry-After", "1")
		http.Error(rw, "too many concurrent requests", http.StatusServiceUnavailable)
		return
	}
	line, err := w.add(req.Context(), body)
	w.answer(req.Context(), rw, req.RemoteAddr, line, err)
}

func (w *Witness) answer(ctx context.Context, rw http.ResponseWriter, from, line string, err error) {
	var r *refusal
	switch {
	case err == nil:
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		rw.Write([]byte(line))
	case errors.As(err, &r) && r.size != nil:
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(r.status)
		fmt.Fprintf(rw, "%d\n", *r.size)
	case errors.As(err, &r):
		w.c.Log.WarnContext(ctx, "witness refuses", "from", from, "status", r.status, "why", r.why)
		http.Error(rw, r.why, r.status)
	default:
		w.c.Log.ErrorContext(ctx, "witness cannot cosign", "from", from, "error", err)
		http.Error(rw, "the witness cannot cosign now; its log has the error", http.StatusInternalServerError)
	}
}
