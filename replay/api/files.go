package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/run"
)

// fileOf returns the description of a file.
func fileOf(i channel.FileInfo) client.FileInfo {
	return client.FileInfo{
		Name: i.Name, Type: string(i.Type), Size: i.Size, Mode: fmt.Sprintf("%04o", i.Mode), Modified: i.Modified, UID: i.UID, GID: i.GID, Target: i.Target,
	}
}

// fileStatus are the statuses of answers to operations that failed; others are 409.
var fileStatus = map[channel.FileCode]int{
	channel.FileMissing: http.StatusNotFound, channel.FileDenied: http.StatusForbidden, channel.FileReadOnly: http.StatusForbidden,
	channel.FileSecret: http.StatusForbidden, channel.FileKernel: http.StatusForbidden,
	channel.FileInvalid: http.StatusBadRequest, channel.FileTooDeep: http.StatusBadRequest, channel.FileUser: http.StatusBadRequest,
	channel.FileArchived: http.StatusBadRequest,
}

// fileProblem returns the response to an error of an operation on a file.
func fileProblem(err error) error {
	var failed *channel.FileError
	switch {
	case errors.As(err, &failed):
		status := fileStatus[failed.Code]
		if status == 0 {
			status = http.StatusConflict
		}
		return access.NewProblem(status, "file-"+string(failed.Code), failed.Error(), "")
	case errors.Is(err, fleet.ErrBusy):
		return later(http.StatusTooManyRequests, "busy", err.Error(), "try again in a moment", time.Second)
	}
	return fleetProblem(err)
}

// fileCall returns the operation that a request asks for, and the files of the sandbox, which is live. The answer has no deadline until the guest
// has answered.
func (h *sandboxesHandler) fileCall(w http.ResponseWriter, r *request, op channel.FileOp) (s fleet.Files, c run.FileCall, err error) {
	sandbox, err := h.find(r)
	if err != nil {
		return s, c, err
	}
	s = sandbox.Files()
	c.Op, c.Path, c.To, c.User, c.After = op, audit.Text(r.str("path")), audit.Text(r.str("to")), audit.Text(r.str("user")), audit.Text(r.str("after"))
	c.Caller = audit.Text(r.who.Name)
	for name, to := range map[string]*bool{"exclusive": &c.Exclusive, "recursive": &c.Recursive, "link": &c.Link} {
		if *to, err = r.flag(name); err != nil {
			return s, c, err
		}
	}
	for name, to := range map[string]*int64{"offset": &c.Offset, "length": &c.Limit} {
		n, err := r.number(name, 0, 1<<62)
		if err != nil {
			return s, c, err
		}
		*to = int64(n)
	}
	if text := r.str("mode"); text != "" {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil || mode == 0 || mode > 0o7777 {
			return s, c, bad("write it in octal, such as 0644", "mode is %.20q", text)
		}
		c.Mode = uint32(mode)
	}
	if err := c.Check(); err != nil && op != channel.FileList {
		return s, c, bad("", "%v", err)
	}
	if err := live(r.Context(), sandbox); err != nil {
		return s, c, err
	}
	return s, c, deadline(http.NewResponseController(w), 0)
}

// fileRoute returns the handler of an operation without content, which answers with the description of the file.
func (h *sandboxesHandler) fileRoute(op channel.FileOp) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		s, c, err := h.fileCall(w, r, op)
		if err != nil {
			return err
		}
		info, err := s.Do(r.Context(), c)
		_ = deadline(http.NewResponseController(w), answerFor)
		if err != nil {
			return fileProblem(err)
		}
		if op == channel.FileRemove {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		return answer(w, fileOf(info))
	}
}

func (h *sandboxesHandler) listFiles(w http.ResponseWriter, r *request) error {
	s, c, err := h.fileCall(w, r, channel.FileList)
	if err != nil {
		return err
	}
	most, err := r.number("limit", channel.MaxListed, channel.MaxListed)
	if err != nil {
		return err
	}
	c.Max = int(most)
	entries, more, err := s.List(r.Context(), c)
	_ = deadline(http.NewResponseController(w), answerFor)
	if err != nil {
		return fileProblem(err)
	}
	list := client.FileList{Files: []client.FileInfo{}}
	for _, e := range entries {
		list.Files = append(list.Files, fileOf(e))
	}
	if more && len(entries) > 0 {
		list.Next = entries[len(entries)-1].Name
	}
	return answer(w, list)
}

// sendFile returns the handler that sends the content of a file, of which a client can ask for a part, or an archive.
func (h *sandboxesHandler) sendFile(op channel.FileOp, contentType string) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		s, c, err := h.fileCall(w, r, op)
		if err != nil {
			return err
		}
		out := &outgoing{w: w, rc: http.NewResponseController(w), contentType: contentType}
		ctx, cancel := h.untilEnd(r.Context())
		defer cancel()
		_, err = s.Read(ctx, c, out)
		return out.end(fileProblem(err))
	}
}

// untilEnd returns ctx, which also ends when the server does.
func (h *sandboxesHandler) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-h.ended:
			cancel(errEnding())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// outgoing sends content to a client that reads it in time.
type outgoing struct {
	w           http.ResponseWriter
	rc          *http.ResponseController
	contentType string
	begun       bool
}

// Write implements io.Writer.
func (o *outgoing) Write(b []byte) (int, error) {
	o.begin()
	if err := deadline(o.rc, slowest); err != nil {
		return 0, err
	}
	return o.w.Write(b)
}

func (o *outgoing) begin() {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", o.contentType)
		o.w.WriteHeader(http.StatusOK)
	}
}

// end ends the answer. After an error a client must not take what it has for all: the connection is cut.
func (o *outgoing) end(err error) error {
	switch {
	case err != nil && o.begun:
		_ = o.rc.Flush() // the end of an archive can have the reason
		panic(http.ErrAbortHandler)
	case err != nil:
		_ = deadline(o.rc, slowest)
		return err
	}
	o.begin()
	return deadline(o.rc, slowest)
}

// takeFile returns the handler that makes a file of the body, or unpacks it. It may be of any length.
func (h *sandboxesHandler) takeFile(op channel.FileOp) func(http.ResponseWriter, *request) error {
	return func(w http.ResponseWriter, r *request) error {
		s, c, err := h.fileCall(w, r, op)
		if err != nil {
			return err
		}
		rc := http.NewResponseController(w)
		ctx, cancel := h.untilEnd(r.Context())
		defer cancel()
		info, err := s.Write(ctx, c, &incoming{r.Body, rc})
		_ = deadline(rc, slowest)
		switch sent := (*bodyError)(nil); {
		case errors.As(err, &sent):
			return sent.problem(op)
		case err != nil:
			return fileProblem(err)
		}
		return answer(w, fileOf(info))
	}
}

// incoming reads content from a client that sends it in time.
type incoming struct {
	body io.Reader
	rc   *http.ResponseController
}

// bodyError is why a body could not be read.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }

// problem returns the response.
func (e *bodyError) problem(op channel.FileOp) error {
	left := "nothing was written"
	if op == channel.FileUnpack {
		left = "only its first files were unpacked"
	}
	if errors.Is(e.err, os.ErrDeadlineExceeded) {
		return access.NewProblem(http.StatusRequestTimeout, "stalled", fmt.Sprintf("nothing of the body came for %v: %s", bodyFor, left), "send it again, without such pauses")
	}
	return bad("send it again", "the body could not be read: %s", left)
}

// Read implements io.Reader.
func (i *incoming) Read(b []byte) (int, error) {
	if err := i.rc.SetReadDeadline(time.Now().Add(bodyFor)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, &bodyError{err}
	}
	n, err := i.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &bodyError{err}
	}
	return n, err
}
