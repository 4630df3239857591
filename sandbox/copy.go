package sandbox

import (
	"context"
	"fmt"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/workspace"
)

// maxNotices bounds how many warnings of one copy the user is shown.
const maxNotices = 10

func (s *Sandbox) copyIn(ctx context.Context, dir string) error {
	done, err := s.guest.CopyIn(ctx, dir)
	s.tell(done)
	return err
}

func (s *Sandbox) copyOut(ctx context.Context, dir string, named []string) error {
	guard, err := workspace.NewGuard(dir, named...)
	if err != nil {
		return err
	}
	done, err := s.guest.CopyOut(ctx, dir, guard)
	s.tell(done)
	switch n := len(done.Deleted); n {
	case 0:
	case 1:
		s.parts.Notice("1 file was deleted in /workspace; it is left alone here")
	default:
		s.parts.Notice(fmt.Sprintf("%d files were deleted in /workspace; they are left alone here", n))
	}
	return err
}

func (s *Sandbox) tell(done channel.Copied) {
	for i, w := range done.Warnings {
		if i == maxNotices {
			s.parts.Notice(fmt.Sprintf("and %d more", len(done.Warnings)-i))
			return
		}
		s.parts.Notice(w)
	}
}
