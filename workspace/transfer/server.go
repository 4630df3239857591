package transfer

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
)

// Server copies for the Client of one run. It is safe for concurrent use.
//
//	NewServer --> open --Close, the end of the connection--> closed
//
// It packs the directory once, and opens the destination once.
type Server struct {
	in  *channel.SourceDir      // nil: nothing is copied in
	out *channel.DestinationDir // nil: nothing is copied out

	work sync.WaitGroup // the goroutines that copy between pipes and files

	mu      sync.Mutex // guards the fields below, and that no goroutine starts once closed is set
	closed  bool
	packing *packing // nil before copy-in-pack
	filling map[channel.PartID]*filling
}

// packing is the directory on its way into a pipe.
type packing struct {
	pipe     *os.File
	done     chan struct{} // closed when the fields below are set
	warnings []string
	err      error
}

// filling is the content of a part on its way out of a pipe.
type filling struct {
	pipe *os.File
	done chan struct{} // closed when the content is complete or has failed
}

// The refusals of a Server; those of a channel.DestinationDir are in addition.
var (
	errNoIn   = errors.New("no directory is copied in")
	errNoOut  = errors.New("no directory is copied out to")
	errPacked = errors.New("the directory was packed before")
	errUnpack = errors.New("the directory was not packed, or has no such warning")
	errClosed = errors.New("copying has ended")
)

// NewServer returns the Server of a directory that is copied in and one that is copied out to. Each may be nil.
func NewServer(in *channel.SourceDir, out *channel.DestinationDir) *Server {
	return &Server{in: in, out: out, filling: map[channel.PartID]*filling{}}
}

// Handlers returns the calls of a Client.
func (s *Server) Handlers() map[string]privsep.Handler {
	h := map[string]privsep.Handler{
		callPack:   handle(s, s.pack),
		callPacked: handle(s, s.packed),
	}
	out := map[string]privsep.Handler{
		callOpen:      handle(s, s.open),
		callDirectory: handle(s, s.directory),
		callFile:      handle(s, s.file),
		callLink:      handle(s, s.link),
		callPlace:     handle(s, s.place),
		callDrop:      handle(s, s.drop),
		callClose:     handle(s, s.close),
	}
	for name, do := range out {
		if s.out == nil {
			do = refuse
		}
		h[name] = do
	}
	return h
}

// refuse is the handler of a run that copies nothing out.
func refuse(_ context.Context, _ []byte, files []*os.File) (any, []*os.File, error) {
	for _, f := range files {
		f.Close()
	}
	return nil, nil, errNoOut
}

// handle returns a handler that fails when the server is closed.
func handle[T any](s *Server, do func(context.Context, T) (any, []*os.File, error)) privsep.Handler {
	return privsep.Handle(func(ctx context.Context, args T) (any, []*os.File, error) {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return nil, nil, errClosed
		}
		return do(ctx, args)
	})
}

// Close ends copying, removes the parts that were not placed, and waits. The end of the connection does the same.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.packing != nil {
		s.packing.pipe.Close()
	}
	for _, f := range s.filling {
		f.pipe.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
	if s.out == nil {
		return nil
	}
	return s.out.Close()
}

// begin starts a goroutine, unless the server is closed. register is called before, with mu held; its error prevents the start.
func (s *Server) begin(register func() error, work func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	if err := register(); err != nil {
		return err
	}
	s.work.Go(work)
	return nil
}

// closeWith closes the server when the connection ends.
func (s *Server) closeWith(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = s.Close() })
}

func (s *Server) pack(ctx context.Context, _ emptyMessage) (any, []*os.File, error) {
	if s.in == nil {
		return nil, nil, errNoIn
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p := &packing{pipe: w, done: make(chan struct{})}
	err = s.begin(func() error {
		if s.packing != nil {
			return errPacked
		}
		s.packing = p
		return nil
	}, func() {
		defer close(p.done)
		p.warnings, p.err = s.in.Pack(ctx, w)
		w.Close()
	})
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, err
	}
	s.closeWith(ctx)
	return emptyMessage{}, []*os.File{r}, nil
}

// packed returns how packing ended, when it has.
func (s *Server) packed(ctx context.Context, c packedCall) (any, []*os.File, error) {
	s.mu.Lock()
	p := s.packing
	s.mu.Unlock()
	if p == nil {
		return nil, nil, errUnpack
	}
	if err := wait(ctx, p.done); err != nil {
		return nil, nil, err
	}
	if p.err != nil {
		return nil, nil, p.err
	}
	if c.From < 0 || c.From > len(p.warnings) {
		return nil, nil, errUnpack
	}
	size, to := 0, c.From
	for ; to < len(p.warnings); to++ {
		if size += len(p.warnings[to]); size > maxWarnings && to > c.From {
			break
		}
	}
	return packedResult{p.warnings[c.From:to], to < len(p.warnings)}, nil, nil
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Server) open(ctx context.Context, _ emptyMessage) (any, []*os.File, error) {
	if err := s.out.Open(ctx); err != nil {
		return nil, nil, err
	}
	s.closeWith(ctx)
	return emptyMessage{}, nil, nil
}

func (s *Server) directory(ctx context.Context, c directoryCall) (any, []*os.File, error) {
	ok, warning, err := s.out.Directory(ctx, string(c.Name), fs.FileMode(c.Mode))
	return directoryResult{ok, warning}, nil, err
}

func (s *Server) file(ctx context.Context, c fileCall) (any, []*os.File, error) {
	p, err := s.out.File(ctx, string(c.Name), c.Attributes)
	if err != nil {
		return nil, nil, err
	}
	if p.ID == 0 {
		return result(p), nil, nil
	}
	w, err := s.fill(p)
	if err != nil {
		return nil, nil, errors.Join(err, s.out.Drop(ctx, p.ID))
	}
	return result(p), []*os.File{w}, nil
}

// fill starts copying the content of a part out of a pipe, and returns the pipe's other end.
func (s *Server) fill(p channel.Part) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		p.Content.Close()
		return nil, err
	}
	f := &filling{pipe: r, done: make(chan struct{})}
	err = s.begin(func() error {
		s.filling[p.ID] = f
		return nil
	}, func() {
		defer s.filled(p.ID, f)
		// A failure is the part's: it cannot be placed.
		_, _ = io.Copy(p.Content, r)
		_ = p.Content.Close()
		_ = r.Close()
	})
	if err != nil {
		p.Content.Close()
		r.Close()
		w.Close()
		return nil, err
	}
	return w, nil
}

func (s *Server) filled(id channel.PartID, f *filling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.filling, id)
	close(f.done)
}

func result(p channel.Part) partResult { return partResult{p.ID, []byte(p.As), p.Warnings} }

func (s *Server) link(ctx context.Context, c linkCall) (any, []*os.File, error) {
	p, err := s.out.Link(ctx, string(c.Name), string(c.Target))
	return result(p), nil, err
}

// place waits until the content of the parts has come.
func (s *Server) place(ctx context.Context, c placeCall) (any, []*os.File, error) {
	for _, id := range c.Parts {
		if f := s.fillingOf(id); f != nil {
			if err := wait(ctx, f.done); err != nil {
				return nil, nil, err
			}
		}
	}
	taken, err := s.out.Place(ctx, c.Parts)
	return placeResult{taken}, nil, err
}

func (s *Server) fillingOf(id channel.PartID) *filling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filling[id]
}

func (s *Server) drop(ctx context.Context, c dropCall) (any, []*os.File, error) {
	if f := s.fillingOf(c.Part); f != nil {
		f.pipe.Close()
		if err := wait(ctx, f.done); err != nil {
			return nil, nil, err
		}
	}
	return emptyMessage{}, nil, s.out.Drop(ctx, c.Part)
}

func (s *Server) close(context.Context, emptyMessage) (any, []*os.File, error) {
	return emptyMessage{}, nil, s.Close()
}
