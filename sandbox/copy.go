package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// maxNotices bounds how many warnings of one copy the user is shown.
const maxNotices = 10

// After progressFirst, and then every progressEvery, a copy describes how far it is.
const (
	progressFirst = 3 * time.Second
	progressEvery = 10 * time.Second
)

func (s *Sandbox) copyIn(ctx context.Context, w Workdir) error {
	of := fmt.Sprintf(" of %d files, %%s of %s", w.Size.Files, units.BytesSize(float64(w.Size.Bytes)))
	m := newManifest(s.parts.Recorder, audit.CopyIn, w.Dir)
	done, err := s.guest.CopyIn(ctx, w.Dir, channel.In{Leave: w.Leave, List: m.list(ctx), Progress: s.progress("copying in: %d" + of)})
	s.warn(done)
	return m.end(ctx, err)
}

func (s *Sandbox) copyOut(ctx context.Context, dir string, guard channel.Guard) error {
	m := newManifest(s.parts.Recorder, audit.CopyOut, dir)
	done, err := s.guest.CopyOut(ctx, dir, channel.Out{Guard: guard, List: m.list(ctx), Progress: s.progress("copying out: %d files, %s")})
	err = m.end(ctx, err)
	s.warn(done)
	switch n := len(done.Deleted); n {
	case 0:
	case 1:
		s.parts.Notice("1 file was deleted in /workspace; it is left alone here")
	default:
		s.parts.Notice(fmt.Sprintf("%d files were deleted in /workspace; they are left alone here", n))
	}
	return err
}

// progress returns what tells the user of a copy's progress, in a format for files and bytes, if that takes long.
func (s *Sandbox) progress(format string) func(files int, bytes int64) {
	if s.parts.Progress == nil {
		return nil
	}
	p := pace{time.Now().Add(progressFirst)}
	return func(files int, bytes int64) {
		if p.due(time.Now()) {
			s.parts.Progress(fmt.Sprintf(format, files, units.BytesSize(float64(bytes))))
		}
	}
}

// pace says when something is to be said again.
type pace struct{ next time.Time }

func (p *pace) due(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(progressEvery)
	return true
}

func (s *Sandbox) warn(done channel.Copied) { Warn(s.parts.Notice, done.Warnings) }

// Warn gives notice of warnings, and of how many more there are when they are many.
func Warn(notice func(string), warnings []string) {
	for i, w := range warnings {
		if i == maxNotices {
			notice(fmt.Sprintf("and %d more", len(warnings)-i))
			return
		}
		notice(w)
	}
}
