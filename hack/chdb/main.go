// Command chdb is a ClickHouse server for Custody's tests: the engine in the library
// libchdb.so, which lies beside the program, behind the part of ClickHouse's HTTP
// interface that clickhouse-go uses. It is a separate module and no part of Custody.
//
// It prints one line of JSON when it is ready (address), keeps its data under
// -path, and ends on SIGTERM or when its standard input closes, so that it cannot
// outlive the test that started it. After a kill, a server started over the same
// directory has all that was committed.
//
// Unlike a real server it has one process, no users, no native protocol, and no
// compression other than gzip.
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

// serve prints that the server is ready, and serves until SIGTERM or the end of standard input.
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
