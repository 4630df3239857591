package client

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
)

// Files are the files of a sandbox. A path is absolute, and can have any bytes but NUL. Errors can be found with errors.Is as fs.ErrNotExist,
// fs.ErrExist and fs.ErrPermission. Content is streamed. It is safe for concurrent use.
type Files struct {
	box  *Box
	user string
}

// Files returns the files of the sandbox, as one of its users sees them; empty: root.
func (b *Box) Files(user string) *Files { return &Files{b, user} }

// query returns the parameters of a request; pairs are names and values, and a pair with an empty value is left out.
func (f *Files) query(path string, pairs ...string) url.Values {
	q := url.Values{"path": {path}}
	pairs = append(pairs, "user", f.user)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func flag(on bool) string {
	if on {
		return "true"
	}
	return ""
}

func modeText(m fs.FileMode) string {
	if m == 0 {
		return ""
	}
	bits := uint32(m.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if m&b.mode != 0 {
			bits |= b.bit
		}
	}
	return fmt.Sprintf("%04o", bits)
}

// Stat describes what a path leads to.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return f.get(ctx, f.query(path))
}

// Lstat describes a file, or a symbolic link itself.
func (f *Files) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return f.get(ctx, f.query(path, "link", "true"))
}

func (f *Files) get(ctx context.Context, q url.Values) (i FileInfo, err error) {
	err = repeat(ctx, func() error { return f.box.client.call(ctx, http.MethodGet, f.box.path("files"), q, nil, &i, nil) })
	return i, err
}

// List returns entries of a directory after a name, in the order of their names; limit bounds their number, 0: 1000. Next of the result is
// the name to continue after, empty at the end.
func (f *Files) List(ctx context.Context, path, after string, limit int) (l FileList, err error) {
	most := ""
	if limit > 0 {
		most = strconv.Itoa(limit)
	}
	q := f.query(path, "after", after, "limit", most)
	err = repeat(ctx, func() error {
		l = FileList{}
		return f.box.client.call(ctx, http.MethodGet, f.box.path("files", "list"), q, nil, &l, nil)
	})
	return l, err
}

// ReadDir returns all entries of a directory.
func (f *Files) ReadDir(ctx context.Context, path string) (all []FileInfo, err error) {
	for after := ""; ; {
		l, err := f.List(ctx, path, after, 0)
		if err != nil {
			return nil, err
		}
		all = append(all, l.Files...)
		if l.Next == "" {
			return all, nil
		}
		after = string(l.Next)
	}
}

// Open returns the content of a regular file from an offset on. An error of the reader, other than io.EOF, means that there is more. The
// caller closes it.
func (f *Files) Open(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	var body io.ReadCloser
	err := repeat(ctx, func() error {
		res, err := f.box.client.open(ctx, http.MethodGet, f.box.path("files", "content"), f.query(path, "offset", strconv.FormatInt(offset, 10)), nil, nil)
		if err == nil {
			body = res.Body
		}
		return err
	})
	return body, err
}

// ReadFile returns the content of a regular file.
func (f *Files) ReadFile(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Write makes a regular file of a content, or replaces a file, when the content has ended. mode is its permissions; 0: those of the file that
// is replaced, else 0644. With exclusive, no file is replaced. After an error of the content, or when ctx ends, nothing is written. While the
// service refuses requests for now, a content that is an io.Seeker, such as a file, is sent again; with another one that is an error.
func (f *Files) Write(ctx context.Context, path string, content io.Reader, mode fs.FileMode, exclusive bool) (i FileInfo, err error) {
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	q := f.query(path, "mode", modeText(mode), "exclusive", flag(exclusive))
	var read <-chan struct{} // by the last request
	send := func() error {
		body, stop, done := interruptible(ctx, content)
		defer stop()
		read = done
		return f.box.client.send(ctx, http.MethodPut, f.box.path("files", "content"), q, body, &i, header)
	}
	s, start := seekable(content)
	if s == nil {
		err = send()
		return i, err
	}
	err = admitted(ctx, func() error {
		if read != nil {
			<-read
		}
		if _, err := s.Seek(start, io.SeekStart); err != nil {
			return err
		}
		return send()
	})
	return i, err
}

// seekable returns a content that can be read again, and where it begins; nil if it cannot.
func seekable(content io.Reader) (io.Seeker, int64) {
	s, ok := content.(io.Seeker)
	if !ok {
		return nil, 0
	}
	start, err := s.Seek(0, io.SeekCurrent)
	if err != nil { // a pipe
		return nil, 0
	}
	return s, start
}

// interruptible returns a reader of a content that does not wait for it any more when ctx ends: net/http would. stop makes further reads fail.
// A read of the content can then still be in progress; done is closed when there is none any more.
func interruptible(ctx context.Context, content io.Reader) (body io.Reader, stop func(), done <-chan struct{}) {
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := io.Copy(w, content)
		w.CloseWithError(err) // nil: the end of the content
	}()
	forget := context.AfterFunc(ctx, func() { r.Close() })
	return r, func() { forget(); r.Close() }, ended
}

// Pack returns a tar archive of what is in a directory: directories, regular files, symbolic links, FIFOs and devices, with names relative to
// it. The sandbox is its author: who extracts it has to bear any names and links. An error of the reader, other than io.EOF, means that there is
// more; Unfinished reports why. The caller closes it.
func (f *Files) Pack(ctx context.Context, path string) (io.ReadCloser, error) {
	var body io.ReadCloser
	err := repeat(ctx, func() error {
		res, err := f.box.client.open(ctx, http.MethodGet, f.box.path("files", "archive"), f.query(path), nil, nil)
		if err == nil {
			body = res.Body
		}
		return err
	})
	return body, err
}

// Unfinished returns why an archive of Pack has no end, if its last header is h; empty: the header is not about that.
func Unfinished(h *tar.Header) string {
	if h == nil || h.Typeflag != tar.TypeXGlobalHeader {
		return ""
	}
	return h.PAXRecords["comment"]
}

// Unpack unpacks a tar archive of directories, regular files and symbolic links into a directory. archive writes it; it is called again if the
// service refuses the request for now. After an error, files that came before can be there.
func (f *Files) Unpack(ctx context.Context, path string, archive func(io.Writer) error) error {
	header := http.Header{"Content-Type": {"application/x-tar"}}
	return admitted(ctx, func() error {
		r, w := io.Pipe()
		var packed error
		done := make(chan struct{})
		go func() {
			defer close(done)
			packed = archive(w)
			w.CloseWithError(packed)
		}()
		err := f.box.client.send(ctx, http.MethodPut, f.box.path("files", "archive"), f.query(path), r, nil, header)
		r.Close()
		<-done
		if packed != nil && !errors.Is(packed, io.ErrClosedPipe) {
			return packed
		}
		return err
	})
}

// WriteFile is Write of bytes.
func (f *Files) WriteFile(ctx context.Context, path string, content []byte, mode fs.FileMode) error {
	_, err := f.Write(ctx, path, bytes.NewReader(content), mode, false)
	return err
}

// Mkdir makes a directory, and with parents also those above it that are missing; it is then no error if it exists.
func (f *Files) Mkdir(ctx context.Context, path string, mode fs.FileMode, parents bool) (i FileInfo, err error) {
	q := f.query(path, "mode", modeText(mode), "recursive", flag(parents))
	err = f.box.client.call(ctx, http.MethodPost, f.box.path("files", "directory"), q, nil, &i, nil)
	return i, err
}

// Remove removes a file or an empty directory, and with recursive also what is in a directory.
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error {
	return f.box.client.call(ctx, http.MethodDelete, f.box.path("files"), f.query(path, "recursive", flag(recursive)), nil, nil, nil)
}

// Move gives a file or a directory another name in the same file system. It replaces a file there, unless exclusive is set.
func (f *Files) Move(ctx context.Context, from, to string, exclusive bool) (i FileInfo, err error) {
	q := f.query(from, "to", to, "exclusive", flag(exclusive))
	err = f.box.client.call(ctx, http.MethodPost, f.box.path("files", "move"), q, nil, &i, nil)
	return i, err
}
