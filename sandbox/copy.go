package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/go-units"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/guest/channel"
)

// maxNotices bounds the number of warnings that are shown for one copy.
const maxNotices = 10

// A copy reports its progress after progressFirst, and then every progressEvery.
const (
	progressFirst = 3 * time.Second
	progressEvery = 10 * time.Second
)

// copier copies between the host and /workspace, and records what it copies.
type copier struct {
	guest    *channel.Client
	recorder Recorder
	notice   func(string)
	progress func(string) // nil: progress is not reported
}

func (c copier) in(ctx context.Context, from In) error {
	of := fmt.Sprintf(" of %d files, %%s of %s", from.Size.Files, units.BytesSize(float64(from.Size.Bytes)))
	m := newManifest(c.recorder, audit.CopyIn, from.Dir)
	done, err := c.guest.CopyIn(ctx, from.Source, channel.In{List: m.list(ctx), Progress: c.reporter("copying in: %d" + of)})
	Warn(c.notice, done.Warnings)
	return m.end(ctx, err)
}

func (c copier) out(ctx context.Context, to Out) error {
	m := newManifest(c.recorder, audit.CopyOut, to.Dir)
	done, err := c.guest.CopyOut(ctx, to.Destination, channel.Out{List: m.list(ctx), Progress: c.reporter("copying out: %d files, %s")})
	err = m.end(ctx, err)
	Warn(c.notice, done.Warnings)
	switch n := len(done.Deleted); n {
	case 0:
	case 1:
		c.notice("1 file was deleted in /workspace; it is left alone here")
	default:
		c.notice(fmt.Sprintf("%d files were deleted in /workspace; they are left alone here", n))
	}
	return err
}

// reporter returns a function that reports a copy's progress, at the interval of pace. format takes the number of files and a size.
func (c copier) reporter(format string) func(files int, bytes int64) {
	if c.progress == nil {
		return nil
	}
	p := pace{time.Now().Add(progressFirst)}
	return func(files int, bytes int64) {
		if p.due(time.Now()) {
			c.progress(fmt.Sprintf(format, files, units.BytesSize(float64(bytes))))
		}
	}
}

// pace limits the rate of progress messages.
type pace struct{ next time.Time }

// due reports whether a message is due, and if so sets the time of the next one.
func (p *pace) due(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(progressEvery)
	return true
}

// Warn calls notice with each of the first maxNotices warnings, and then with the number of the others.
func Warn(notice func(string), warnings []string) {
	for i, w := range warnings {
		if i == maxNotices {
			notice(fmt.Sprintf("and %d more", len(warnings)-i))
			return
		}
		notice(w)
	}
}
