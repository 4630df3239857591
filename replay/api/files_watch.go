package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/custody-project/custody/client"
	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/replay/access"
)

// fileWatches watches directories of sandboxes.
type fileWatches struct{ *sandboxesHandler }

// follow streams the changes of a directory as events, each with its number, until the client leaves or the directory is gone.
func (fw fileWatches) follow(w http.ResponseWriter, r *request) error {
	h := fw.sandboxesHandler
	s, c, err := h.fileCall(w, r, channel.FileWatch)
	if err != nil {
		return err
	}
	leave, err := h.enter(r)
	if err != nil {
		return err
	}
	defer leave()
	access.Explains(r.Context())
	ctx, cancel := h.untilEnd(r.Context())
	defer cancel()
	if !r.who.Expires.IsZero() {
		var expire context.CancelFunc
		ctx, expire = context.WithDeadlineCause(ctx, r.who.Expires, access.ErrWithdrawn)
		defer expire()
	}
	ctx, stop := context.WithCancel(ctx)
	changes := make(chan channel.FileChange)
	var watching sync.WaitGroup
	var failed error
	watching.Go(func() {
		defer close(changes)
		failed = s.Watch(ctx, c, func(ch channel.FileChange) error {
			select {
			case changes <- ch:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	defer watching.Wait()
	defer stop()
	st := &changeStream{stream: stream{w: w, rc: http.NewResponseController(w)}}
	if st.follow(changes) != nil {
		return nil // the client has gone
	}
	if errors.Is(failed, access.ErrWithdrawn) {
		p := access.NewProblem(http.StatusUnauthorized, "credential", "the credential has expired or was withdrawn", "use another one")
		if st.sent == 0 {
			p.Write(w, r.Request)
			return nil
		}
		failed = p
	}
	return st.end(fileProblem(failed))
}

// changeStream sends changes to one client.
type changeStream struct {
	stream
	sent uint64
}

// follow sends changes until there are no more.
func (st *changeStream) follow(changes <-chan channel.FileChange) error {
	beating := time.NewTicker(beat)
	defer beating.Stop()
	for {
		select {
		case ch, more := <-changes:
			if !more {
				return nil
			}
			if err := st.change(ch); err != nil {
				return err
			}
		case <-beating.C:
			if st.sent == 0 {
				continue
			}
			if err := st.send([]byte(": alive\n\n")); err != nil {
				return err
			}
		}
	}
}

func (st *changeStream) change(ch channel.FileChange) error {
	if st.sent == 0 {
		st.w.Header().Set("Content-Type", "text/event-stream")
		st.w.Header().Set("X-Accel-Buffering", "no")
	}
	st.sent++
	text, err := encode(client.DirectoryChange{Seq: st.sent, Op: string(ch.Op), Path: ch.Path, To: ch.To, Directory: ch.Directory})
	if err != nil {
		return err
	}
	return st.send(fmt.Appendf(nil, "id: %d\nevent: change\ndata: %s\n\n", st.sent, text))
}

// end ends the answer, with the problem if there was one.
func (st *changeStream) end(err error) error {
	if st.sent == 0 {
		_ = deadline(st.rc, slowest)
		return err
	}
	if err == nil {
		_ = st.event("end", struct{}{}) // it fails only if the client has gone
	} else {
		_ = st.event("problem", problemOf(err))
	}
	return deadline(st.rc, slowest) // for what ends the answer
}
