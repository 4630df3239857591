package api

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// headerFor, bodyFor and idleFor bound how long a client may take to send a request.
	headerFor, bodyFor, idleFor = 10 * time.Second, 30 * time.Second, 2 * time.Minute
	// maxHeader bounds a request's headers, in bytes.
	maxHeader = 64 << 10
	// answerFor bounds how long a client may take to read a response that is neither a file nor a stream.
	answerFor = 2 * time.Minute
	// endFor is how long requests may continue when the server ends.
	endFor = 10 * time.Second
)

// Serve serves on l until ctx ends, with TLS if config is not nil. It then ends all streams,
// waits endFor for other requests, closes l and returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener, config *tls.Config) error {
	srv := &http.Server{
		Handler: s, TLSConfig: config,
		ReadHeaderTimeout: headerFor, ReadTimeout: bodyFor, WriteTimeout: answerFor, IdleTimeout: idleFor, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() {
		if config != nil {
			ended <- srv.ServeTLS(l, "", "")
		} else {
			ended <- srv.Serve(l)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.stop() // streams do not end by themselves
	rest, cancel := context.WithTimeout(context.Background(), endFor)
	defer cancel()
	err := srv.Shutdown(rest)
	if err != nil { // clients that still read are disconnected
		err = srv.Close()
	}
	<-ended
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// deadline bounds how long the client may take for what is written next; 0: no limit.
// HTTP/2 ends a stream whose deadline is over even while no one writes.
func deadline(rc *http.ResponseController, d time.Duration) error {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	if err := rc.SetWriteDeadline(at); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
