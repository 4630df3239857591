package firecracker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/privsep"
)

const (
	// apiTimeout bounds a call of the API. On a host that is itself an emulated VM, a start takes seconds.
	apiTimeout = time.Minute
	// saveTimeout bounds the writing of a snapshot.
	saveTimeout = 10 * time.Minute
	// maxAnswer bounds the body of an answer, and its header.
	maxAnswer = 64 << 10
)

// api is a client of Firecracker's API: HTTP over a unix socket. The server is treated as hostile: answers are bounded
// in size and time.
type api struct {
	http  *http.Client
	limit time.Duration // of a call
}

// dialer connects to a socket.
type dialer func(ctx context.Context) (net.Conn, error)

// newAPI returns a client of a server.
func newAPI(dial dialer) *api {
	to := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return &api{limit: apiTimeout, http: &http.Client{
		Transport:     &http.Transport{DialContext: to, MaxResponseHeaderBytes: maxAnswer, DisableCompression: true, MaxIdleConns: 1},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// close closes the idle connection.
func (a *api) close() { a.http.CloseIdleConnections() }

// put sets a resource.
func (a *api) put(ctx context.Context, path string, body any) error {
	return a.call(ctx, http.MethodPut, path, body, nil)
}

// patch changes a resource.
func (a *api) patch(ctx context.Context, path string, body any) error {
	return a.call(ctx, http.MethodPatch, path, body, nil)
}

// get reads a resource.
func (a *api) get(ctx context.Context, path string, answer any) error {
	return a.call(ctx, http.MethodGet, path, nil, answer)
}

func (a *api) call(ctx context.Context, method, path string, body, answer any) error {
	err := a.exchange(ctx, method, path, body, answer)
	if err != nil {
		return fmt.Errorf("firecracker's API: %s %s: %w", method, path, err)
	}
	return nil
}

func (a *api) exchange(ctx context.Context, method, path string, body, answer any) error {
	within, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(within, method, "http://localhost"+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.http.Do(req)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("no answer within %v", a.limit)
		}
		return errors.Unwrap(err) // without the method and the address
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return decodeAnswer(resp.StatusCode, b, answer)
}

// decodeAnswer decodes the body of an answer. A status that reports a failure results in an error with the server's
// message.
func decodeAnswer(status int, body []byte, answer any) error {
	if len(body) > maxAnswer {
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	switch {
	case status == http.StatusNoContent && answer == nil:
		return nil
	case status == http.StatusOK && answer != nil:
		if err := json.Unmarshal(body, answer); err != nil {
			return fmt.Errorf("unreadable answer: %w", err)
		}
		return nil
	}
	var fault struct {
		Message string `json:"fault_message"`
	}
	if status < 400 || json.Unmarshal(body, &fault) != nil || fault.Message == "" {
		return fmt.Errorf("unexpected answer: status %d, %.100q", status, body)
	}
	return fmt.Errorf("status %d: %.1000s", status, strconv.Quote(fault.Message))
}

// dialOwned connects to the unix socket that fd was opened of with O_PATH, checks that its listener has this uid, and closes fd. The error is
// errNotListening if nothing listens. The path is used in errors only.
func dialOwned(ctx context.Context, fd int, path string, uid int) (net.Conn, error) {
	defer unix.Close(fd)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if errors.Is(err, unix.ECONNREFUSED) {
		err = errNotListening // the socket is there a moment before the process listens
	}
	if err != nil {
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	peer, err := privsep.PeerOf(conn.(*net.UnixConn))
	if err == nil && peer.UID != uid {
		err = fmt.Errorf("the socket belongs to a process of uid %d, expected %d", peer.UID, uid)
	}
	if err != nil {
		conn.Close()
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return conn, nil
}
