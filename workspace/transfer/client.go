package transfer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
)

// Client is a channel.Source and a channel.Destination whose files are at the other end of a connection. It is safe for
// concurrent use.
type Client struct{ conn *privsep.Conn }

// NewClient returns the Client of a Server at the other end of the connection.
func NewClient(c *privsep.Conn) *Client { return &Client{c} }

var (
	_ channel.Source      = (*Client)(nil)
	_ channel.Destination = (*Client)(nil)
)

// Send implements channel.Source.
func (c *Client) Send(ctx context.Context, send channel.Sender) ([]string, error) {
	files, err := c.conn.Call(ctx, callPack, emptyMessage{}, nil)
	if err != nil {
		return nil, err
	}
	pipe, err := only(callPack, files)
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	defer context.AfterFunc(ctx, func() { pipe.Close() })()
	var refused error // of send
	err = forEach(pipe, func(h *tar.Header, content io.Reader) error {
		refused = send(h, content)
		return refused
	})
	pipe.Close()
	if refused != nil && !errors.Is(refused, io.ErrUnexpectedEOF) { // else the stream ended early, and packing knows why
		return nil, refused
	}
	warnings, failed := c.warnings(ctx)
	if failed != nil {
		err = failed
	}
	return warnings, err
}

// forEach passes each entry of a tar stream to send.
func forEach(r io.Reader, send channel.Sender) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return err
		}
		var content io.Reader
		if h.Typeflag == tar.TypeReg {
			content = in
		}
		sent := &tar.Header{
			Typeflag: h.Typeflag, Name: h.Name, Linkname: h.Linkname, Size: h.Size, Mode: h.Mode, ModTime: h.ModTime, Format: tar.FormatPAX,
		}
		if err := send(sent, content); err != nil {
			return err
		}
	}
}

// warnings returns the warnings of packing, or why it failed.
func (c *Client) warnings(ctx context.Context) (all []string, err error) {
	for {
		var r packedResult
		if _, err := c.conn.Call(ctx, callPacked, packedCall{len(all)}, &r); err != nil {
			return all, err
		}
		all = append(all, r.Warnings...)
		if !r.More {
			return all, nil
		}
	}
}

// only returns the one file that came with the result of a call.
func only(call string, files []*os.File) (*os.File, error) {
	if len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("call %s returned %d descriptors", call, len(files))
	}
	return files[0], nil
}

// Open implements channel.Destination.
func (c *Client) Open(ctx context.Context) error {
	_, err := c.conn.Call(ctx, callOpen, emptyMessage{}, nil)
	return err
}

// Directory implements channel.Destination.
func (c *Client) Directory(ctx context.Context, name string, mode fs.FileMode) (ok bool, warning string, err error) {
	var r directoryResult
	_, err = c.conn.Call(ctx, callDirectory, directoryCall{[]byte(name), uint32(mode)}, &r)
	return r.OK, r.Warning, err
}

// File implements channel.Destination.
func (c *Client) File(ctx context.Context, name string, a channel.Attributes) (channel.Part, error) {
	if a.Time = a.Time.UTC(); a.Time.Year() < 1970 || a.Time.Year() > 9999 { // it is not set, and may have no form in JSON
		a.Time = time.Time{}
	}
	var r partResult
	files, err := c.conn.Call(ctx, callFile, fileCall{[]byte(name), a}, &r)
	if err != nil || r.ID == 0 {
		return r.part(nil), err
	}
	pipe, err := only(callFile, files)
	if err != nil {
		return channel.Part{}, err
	}
	return r.part(&content{pipe: pipe, client: c, part: r.ID}), nil
}

func (r partResult) part(content io.WriteCloser) channel.Part {
	return channel.Part{ID: r.ID, As: string(r.As), Content: content, Warnings: r.Warnings}
}

// content is the pipe for a file's content.
type content struct {
	pipe   *os.File
	client *Client
	part   channel.PartID
}

// Write implements io.Writer. If the other process does not take the content, it returns why.
func (c *content) Write(b []byte) (int, error) {
	n, err := c.pipe.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		if _, why := c.client.Place(context.Background(), []channel.PartID{c.part}); why != nil {
			err = why
		}
	}
	return n, err
}

// Close implements io.Closer.
func (c *content) Close() error { return c.pipe.Close() }

// Link implements channel.Destination.
func (c *Client) Link(ctx context.Context, name, target string) (channel.Part, error) {
	var r partResult
	_, err := c.conn.Call(ctx, callLink, linkCall{[]byte(name), []byte(target)}, &r)
	return r.part(nil), err
}

// Place implements channel.Destination.
func (c *Client) Place(ctx context.Context, parts []channel.PartID) ([]channel.PartID, error) {
	var r placeResult
	_, err := c.conn.Call(ctx, callPlace, placeCall{parts}, &r)
	return r.Taken, err
}

// Drop implements channel.Destination.
func (c *Client) Drop(ctx context.Context, part channel.PartID) error {
	_, err := c.conn.Call(ctx, callDrop, dropCall{part}, nil)
	return err
}

// Close implements channel.Destination.
func (c *Client) Close() error {
	_, err := c.conn.Call(context.Background(), callClose, emptyMessage{}, nil) // ends with the connection
	return err
}
