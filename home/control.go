package home

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
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit/wal"
)

// A live run can be spoken to over a socket in its directory, which only the
// run's owner can reach: HTTP, one resource.
//
//	PUT /policy    the body is a project's file; the answer a PolicyChange
//
// The socket is gone when the run has ended, or with its directory's next tidying.
const controlSocket = "control"

// ErrNotLive means that a run has ended, or never was on this host.
var ErrNotLive = errors.New("the run does not live")

// PolicyChange is the answer to a policy put into force.
type PolicyChange struct {
	Generation uint32 `json:"generation"`
	Digest     string `json:"digest"`
	Previous   string `json:"previous"`
	Ended      int    `json:"ended"` // flows
	Error      string `json:"error,omitempty"`
}

// maxPolicy is the longest file that is taken, in bytes.
const maxPolicy = 1 << 20

// Control serves the run's socket until the returned function is called, which
// waits for what is under way.
func (r *Run) Control(setPolicy func(ctx context.Context, file []byte) (PolicyChange, error)) (stop func(), err error) {
	l, err := listenControl(r.Dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /policy", func(w http.ResponseWriter, req *http.Request) {
		file, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPolicy))
		var c PolicyChange
		if err == nil {
			c, err = setPolicy(req.Context(), file)
		}
		if err != nil {
			c.Error = err.Error()
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		json.NewEncoder(w).Encode(c)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
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

// shortPath names a socket in a directory whose own path may be longer than a
// socket's may be (108 bytes). The directory stays open as long as the name is used.
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
	l.SetUnlinkOnClose(false) // the name is not good for that any more
	if err := os.Chmod(filepath.Join(dir, controlSocket), 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// LiveRun returns the live run that is called name, or begins so; "last" is the
// youngest.
func (h *Home) LiveRun(name string) (string, error) {
	runs, err := h.logs()
	if err != nil {
		return "", err
	}
	var found []string
	for _, run := range runs {
		if (name == "last" || strings.HasPrefix(run, name)) && wal.Locked(h.RunDir(run)) {
			found = append(found, run)
		}
	}
	slices.Sort(found) // by time
	switch {
	case len(found) == 0:
		return "", fmt.Errorf("%w: %s", ErrNotLive, name)
	case name != "last" && len(found) > 1:
		return "", fmt.Errorf("%d live runs begin with %s: %s", len(found), name, strings.Join(found, ", "))
	}
	return found[len(found)-1], nil
}

// SetPolicy puts the policy of a project's file into force in a live run.
func (h *Home) SetPolicy(ctx context.Context, run string, file []byte) (PolicyChange, error) {
	var c PolicyChange
	path, d, err := shortPath(h.RunDir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%w: %s", ErrNotLive, run)
	}
	if err != nil {
		return c, err
	}
	defer d.Close()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://run/policy", bytes.NewReader(file))
	if err != nil {
		return c, err
	}
	resp, err := client.Do(req)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%w: %s", ErrNotLive, run)
	}
	if err != nil {
		return c, fmt.Errorf("speak to run %s: %w", run, err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPolicy)).Decode(&c); err != nil {
		return c, fmt.Errorf("speak to run %s: %w", run, err)
	}
	if c.Error != "" {
		return c, errors.New(c.Error)
	}
	return c, nil
}
