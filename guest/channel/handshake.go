package channel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The handshake is three lines, before any framing:
//
//	guest                         host
//	  | "READY\n"                   |   once, when the guest has booted; a snapshot
//	  | ---------------------------> |   is taken after it, while the guest reads
//	  |                 Wake + "\n" |
//	  | <--------------------------- |   after each restore, after READY in a cold boot, or after park
//	  | Awake + "\n"                |
//	  | ---------------------------> |   then yamux, the host as its client; the
//	                                    guest's identity comes in a stream of it
//
// Each end waits for the other's line before it writes its next, so no bytes
// may follow a line's end.

const (
	readyLine = "READY"
	maxWake   = 4 << 10
	maxAwake  = 4 << 10
)

// Awake is the guest's answer to Wake.
type Awake struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// AwaitReady waits on the host for a guest that boots to report that it is ready
// for its Wake, or to be snapshotted. When ctx ends first, conn is closed.
func AwaitReady(ctx context.Context, conn io.ReadWriteCloser) error {
	defer closeOnDone(ctx, conn)()
	line, err := readLine(conn, len(readyLine)+2)
	if err != nil {
		return contextOr(ctx, fmt.Errorf("wait for the guest to be ready: %w", err))
	}
	if string(line) != readyLine {
		return hostile("expected %s, got %.20q", readyLine, line)
	}
	return nil
}

// SendReady reports to the host that the guest waits for its Wake.
func SendReady(w io.Writer) error {
	_, err := io.WriteString(w, readyLine+"\n")
	return err
}

// AwaitWake reads the host's Wake in the guest.
func AwaitWake(r io.Reader) (Wake, error) {
	var w Wake
	line, err := readLine(r, maxWake)
	if err != nil {
		return w, fmt.Errorf("wait for the host's wake: %w", err)
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return w, fmt.Errorf("decode the host's wake: %w", err)
	}
	return w, nil
}

// SendAwake answers the host's Wake.
func SendAwake(w io.Writer, a Awake) error { return writeLine(w, a) }

// wake sends w and reads the guest's answer.
func wake(conn io.ReadWriter, w Wake) error {
	if err := writeLine(conn, w); err != nil {
		return fmt.Errorf("wake the guest: %w", err)
	}
	line, err := readLine(conn, maxAwake)
	if err != nil {
		return fmt.Errorf("wake the guest: %w", err)
	}
	var a Awake
	if err := json.Unmarshal(line, &a); err != nil {
		return hostile("answer to wake: %w", err)
	}
	if !a.OK {
		return fmt.Errorf("guest could not wake: %.500q", a.Error)
	}
	return nil
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// readLine reads up to and without the newline, which must be the last byte sent so far.
func readLine(r io.Reader, limit int) ([]byte, error) {
	buf := make([]byte, 0, 1024)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), limit)])
		at := bytes.IndexByte(buf[len(buf):len(buf)+n], '\n')
		if at >= 0 {
			if at != n-1 {
				return nil, hostile("%d bytes follow a line that ends an exchange", n-1-at)
			}
			return buf[:len(buf)+at], nil
		}
		buf = buf[:len(buf)+n]
		if len(buf) >= limit {
			return nil, hostile("line is longer than %d bytes", limit)
		}
		if err != nil {
			if errors.Is(err, io.EOF) && len(buf) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// closeOnDone closes c when ctx ends, unless the returned function is called before.
func closeOnDone(ctx context.Context, c io.Closer) func() {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	return func() { stop() }
}

// contextOr returns the cause of ctx if it has ended, and err otherwise.
func contextOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
