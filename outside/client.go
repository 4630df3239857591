package outside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/custody-project/custody/internal/endpoint"
	"github.com/custody-project/custody/privsep"
)

// web makes the requests in the process. It is safe for concurrent use.
type web struct {
	mu    sync.Mutex // guards known
	known map[[32]byte]*http.Transport
}

// maxServers bounds the servers to which connections are kept.
const maxServers = 16

// transport returns the transport to a server. If socket is not nil, it is for one request over that connection.
func (w *web) transport(s endpoint.Server, socket net.Conn) (*http.Transport, error) {
	if socket != nil {
		t, err := s.Transport()
		if err != nil {
			return nil, err
		}
		t.DisableKeepAlives = true
		t.DialContext = func(context.Context, string, string) (net.Conn, error) { return socket, nil }
		return t, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	name := sha256.Sum256(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.known[name]; t != nil {
		return t, nil
	}
	t, err := s.Transport()
	if err != nil {
		return nil, err
	}
	if len(w.known) >= maxServers {
		for _, old := range w.known {
			old.CloseIdleConnections()
		}
		clear(w.known)
	}
	w.known[name] = t
	return t, nil
}

// request makes a request. It follows no redirect.
func (w *web) request(ctx context.Context, body []byte, files []*os.File) (any, []*os.File, error) {
	c, socket, err := contentOf(files)
	if err != nil {
		return nil, nil, err
	}
	if socket != nil {
		defer socket.Close()
	}
	var r request
	if err := privsep.Decode(body, &r); err != nil {
		return nil, nil, err
	}
	t, err := w.transport(c.Server, socket)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, min(r.Within, maxCall))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(c.Body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = r.Header
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(req)
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err // root's process names the address
	}
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	if err != nil {
		return nil, nil, err
	}
	f, err := privsep.Memory("answer", text)
	if err != nil {
		return nil, nil, err
	}
	return response{answer.StatusCode, answer.Header}, []*os.File{f}, nil
}

// contentOf returns what is in the files of a request: its content, and a connection to the server's socket if that has one.
func contentOf(files []*os.File) (c content, socket net.Conn, err error) {
	if len(files) != 1 && len(files) != 2 {
		closeAll(files)
		return c, nil, errors.New("a request is one file, or two with a connection")
	}
	defer closeAll(files[1:])
	if err := privsep.FromMemory(files[0], &c); err != nil {
		return c, nil, err
	}
	if (len(files) == 2) != (c.Server.Socket != "") {
		return c, nil, errors.New("a server with a socket comes with a connection")
	}
	if len(files) == 2 {
		socket, err = net.FileConn(files[1])
	}
	return c, socket, err
}
