package regular

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// givenWait is how long Given waits for who writes to a pipe.
const givenWait = 30 * time.Second

// Given reads a file that a person has named, of at most limit bytes. It can be a pipe, such as a shell makes for
// <(command): who writes to it has 30 s. ctx ends the wait.
func Given(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, givenWait, fmt.Errorf("nothing, or no end, came within %v", givenWait))
	defer cancel()
	type content struct {
		text []byte
		err  error
	}
	read := make(chan content, 1)
	go func() { // an open that waits for a writer cannot be called back: it ends with the process
		text, err := readAtMost(path, limit)
		read <- content{text, err}
	}()
	select {
	case c := <-read:
		return c.text, c.err
	case <-ctx.Done():
		return nil, &fs.PathError{Op: "read", Path: path, Err: context.Cause(ctx)}
	}
}

func readAtMost(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return text, err
}

// KeyPair is tls.LoadX509KeyPair for regular files.
func KeyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
