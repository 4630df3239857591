// Command chdb is a ClickHouse server for Custody's tests: the current engine as
// the library libchdb.so, which stands beside the program, behind ClickHouse's
// HTTP interface as clickhouse-go speaks it. It is a module of its own: nothing of
// it is part of Custody.
//
// It prints one line of JSON when it answers (address), keeps its data under
// -path, and ends on SIGTERM or when its standard input closes, so that it cannot
// outlive the test that started it. Started again over the directory of a server
// that was killed, it goes on with what was committed.
//
// It differs from a real server in what its clients cannot see (one process, no
// users, no native protocol) and in that it knows no compression but gzip.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chdb:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	dir := flag.String("path", "", "`directory` of the data, made if need be")
	library := flag.String("library", "", "the engine's library (default: libchdb.so beside this program)")
	flag.Parse()
	if *dir == "" {
		return fmt.Errorf("-path is missing")
	}
	if *library == "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		*library = filepath.Join(filepath.Dir(program), "libchdb.so")
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	e, err := load(*library, *dir)
	if err != nil {
		return err
	}
	return serve(&handler{engine: e}, ln)
}

// serve reports that the server is ready, and serves until it is asked to end.
func serve(h *handler, ln net.Listener) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": ln.Addr().String()}); err != nil {
		return err
	}
	eof := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(eof)
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	case <-eof:
	}
	err := srv.Close()
	h.mu.Lock() // requests under way end first
	h.engine.close()
	return err
}
