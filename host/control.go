package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
)

// A live run serves HTTP on a socket in its directory, which only the run's owner
// can reach:
//
//	PUT /policy    the body is a project file; the answer is a PolicyChange
//	PUT /pause     revokes the step's credentials and freezes the sandbox
//	PUT /resume    resumes the sandbox
//	PUT /snapshot  the body is a SnapshotRequest: writes the sandbox's memory to a new file
//
// The header Custody-User has the uid of a client of the service, for whom the request is made. Any answer but 200 is {"error": ...}. The
// socket is removed when the run ends, or when its directory is next tidied.
const controlSocket = "control"

const userHeader = "Custody-User"

// ErrNotLive reports that a run has ended, or that this host has no such run.
var ErrNotLive = errors.New("the run is not live")

// PolicyChange is the answer to a change of policy.
type PolicyChange struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
	Previous   string `json:"previous"`
	Ended      int    `json:"ended"` // flows that the change ended
}

// SnapshotRequest names the file to which a sandbox's memory is written. The file must not exist yet.
type SnapshotRequest struct {
	File    string `json:"file"`     // absolute path
	EndStep bool   `json:"end_step"` // kill the current step first, and its processes
}

// Controls are the requests that a live run carries out.
type Controls struct {
	// User has started the run. Of the clients of the service only this user and root can control it.
	User int
	// SetPolicy allows, with narrow, only what the run's registered project allows, or the defaults if it has none.
	SetPolicy func(ctx context.Context, file []byte, narrow bool) (PolicyChange, error)
	Pause     func(ctx context.Context) error
	Resume    func(ctx context.Context) error
	Snapshot  func(ctx context.Context, r SnapshotRequest) error
}

// maxPolicy limits the size of a project file, in bytes.
const maxPolicy = 1 << 20

type refusal struct {
	Error string `json:"error"`
}

// Control serves the run's socket until the returned function is called, which
// waits for the requests that are being handled.
func (r *Run) Control(c Controls) (stop func(), err error) {
	l, err := listenControl(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	s := &http.Server{Handler: c.mux(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(l)
	}()
	return func() {
		s.Shutdown(context.Background())
		<-served
		os.Remove(filepath.Join(r.Dir, controlSocket))
	}, nil
}

func (c Controls) mux() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(ctx context.Context, body []byte, narrow bool) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			client := req.Header.Get(userHeader)
			err := c.admit(client)
			var body []byte
			if err == nil {
				body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxPolicy))
			}
			var answer any = struct{}{}
			if err == nil {
				answer, err = do(req.Context(), body, client != "")
			}
			if err != nil {
				w.WriteHeader(http.StatusUnprocessableEntity)
				answer = refusal{err.Error()}
			}
			json.NewEncoder(w).Encode(answer)
		})
	}
	handle("PUT /policy", func(ctx context.Context, body []byte, narrow bool) (any, error) {
		return c.SetPolicy(ctx, body, narrow)
	})
	handle("PUT /pause", func(ctx context.Context, _ []byte, _ bool) (any, error) { return struct{}{}, c.Pause(ctx) })
	handle("PUT /resume", func(ctx context.Context, _ []byte, _ bool) (any, error) { return struct{}{}, c.Resume(ctx) })
	handle("PUT /snapshot", func(ctx context.Context, body []byte, _ bool) (any, error) {
		var r SnapshotRequest
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("snapshot request: %w", err)
		}
		return struct{}{}, c.Snapshot(ctx, r)
	})
	return mux
}

// admit returns an error unless the client of the service with this uid can control the run; "" stands for a process that needs no service.
func (c Controls) admit(client string) error {
	if client == "" || client == "0" || client == strconv.Itoa(c.User) {
		return nil
	}
	return fmt.Errorf("%s has started the run: only that user and root can control it", UserName(c.User))
}

// shortPath returns a name for the socket of a directory whose own path may exceed the
// limit for sockets (108 bytes). The directory must stay open while the name is used.
func shortPath(dir string) (string, *os.File, error) {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), controlSocket), d, nil
}

func listenControl(dir string) (net.Listener, error) {
	path, d, err := shortPath(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the name does not lead to the socket when the directory is closed
	if err := os.Chmod(filepath.Join(dir, controlSocket), 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Find returns the live run whose name is name or begins with it; "last" is the
// newest.
func (c Control) Find(name string) (string, error) {
	runs, err := c.host.RunLogs().all()
	if err != nil {
		return "", err
	}
	var found []string
	for _, run := range runs {
		if strings.HasPrefix(run, SandboxPrefix) && (name == "last" || strings.HasPrefix(run, name)) && wal.Locked(c.host.RunDir(run)) {
			found = append(found, run)
		}
	}
	slices.Sort(found) // the names begin with the time
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%w: %s", ErrNotLive, name)
	case name != "last" && len(found) > 1:
		return "", fmt.Errorf("%d live runs begin with %s: %s", len(found), name, strings.Join(found, ", "))
	}
	return found[len(found)-1], nil
}

// For returns a control for a client of the service, which reaches the runs that this user has started; root reaches all.
func (c Control) For(uid int) Control {
	c.user = &uid
	return c
}

// SetPolicy puts the policy of a project file into force in a live run. For a client of the service it may allow no more than the run's
// registered project does, or than the defaults if the run has none.
func (c Control) SetPolicy(ctx context.Context, run string, file []byte) (change PolicyChange, err error) {
	err = c.put(ctx, run, "policy", file, &change)
	return change, err
}

// Pause revokes a live run's credentials and freezes its sandbox.
func (c Control) Pause(ctx context.Context, run string) error {
	return c.put(ctx, run, "pause", nil, &struct{}{})
}

// Resume resumes a paused sandbox.
func (c Control) Resume(ctx context.Context, run string) error {
	return c.put(ctx, run, "resume", nil, &struct{}{})
}

// Snapshot writes the memory of a live run's sandbox to a file.
func (c Control) Snapshot(ctx context.Context, run string, r SnapshotRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.put(ctx, run, "snapshot", body, &struct{}{})
}

// put sends a request to a live run.
func (c Control) put(ctx context.Context, run, what string, body []byte, answer any) error {
	path, d, err := shortPath(c.host.RunDir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotLive, run)
	}
	if err != nil {
		return err
	}
	defer d.Close()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://run/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if c.user != nil {
		req.Header.Set(userHeader, strconv.Itoa(*c.user))
	}
	resp, err := client.Do(req)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNotLive, run)
	}
	if err != nil {
		return fmt.Errorf("control run %s: %w", run, err)
	}
	defer resp.Body.Close()
	text := json.NewDecoder(io.LimitReader(resp.Body, maxPolicy))
	var no refusal
	if resp.StatusCode != http.StatusOK {
		answer = &no
	}
	if err := text.Decode(answer); err != nil {
		return fmt.Errorf("control run %s: %w", run, err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(no.Error)
	}
	return nil
}
