package state

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/store"
)

// Delete removes the snapshot of a run. The error is ErrNotFound if there is none, and ErrClaimed if it is in use.
func (s *Store) Delete(ctx context.Context, run string) error {
	f, err := s.open(ctx, run, unix.LOCK_EX)
	if err == nil {
		err = errors.Join(s.remove(f, s.path(run)), f.Close())
	}
	if err != nil {
		return fmt.Errorf("delete the paused state of run %s: %w", run, err)
	}
	return nil
}

// Erase removes what the store has of a run, and returns the snapshots that it removed. The error is ErrClaimed if a process reads
// or writes one, which then stays.
func (s *Store) Erase(ctx context.Context, run string) (removed []Info, err error) {
	if !store.ValidRun(run) {
		return nil, fmt.Errorf("%.80q is not the ID of a run", run)
	}
	info, err := s.Stat(run)
	if err == nil {
		err = s.Delete(ctx, run)
	}
	switch {
	case err == nil:
		removed = append(removed, info)
	case errors.Is(err, ErrNotFound):
		err = nil
	}
	return removed, errors.Join(err, s.eraseTemps(run))
}

// Sweep removes what dead processes left, the snapshots that have expired, and the oldest ones until the budget suffices. Those in use stay.
func (s *Store) Sweep(ctx context.Context) error {
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	errs := []error{s.clean()}
	list, err := s.all(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, info := range list {
		if s.expired(info) {
			_, err := s.retire(ctx, info, Expired)
			errs = append(errs, err)
		}
	}
	_, err = s.makeRoom(ctx, 0, "") // those that are in use stay, even over the budget
	return errors.Join(append(errs, err)...)
}

// makeRoom removes the snapshots that have expired, then the oldest ones, until the budget suffices for size more bytes, and reports whether it
// does. The snapshot of the run replaced does not count. s.lock is held.
func (s *Store) makeRoom(ctx context.Context, size int64, replaced string) (enough bool, err error) {
	if s.config.Budget <= 0 {
		return true, nil
	}
	total, err := s.size(replaced)
	if err != nil {
		return false, err
	}
	if total += size; total <= s.config.Budget || size > s.config.Budget {
		return total <= s.config.Budget, nil
	}
	list, err := s.all(ctx)
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(list, func(a, b Info) int { return s.rank(a) - s.rank(b) })
	var errs []error
	for _, info := range list {
		if total <= s.config.Budget {
			break
		}
		if info.Run == replaced {
			continue
		}
		why := OverBudget
		if s.expired(info) {
			why = Expired
		}
		gone, err := s.retire(ctx, info, why)
		if gone {
			total -= info.Size
		}
		errs = append(errs, err)
	}
	return total <= s.config.Budget, errors.Join(errs...)
}

// rank sorts what has expired before the rest.
func (s *Store) rank(i Info) int {
	if s.expired(i) {
		return 0
	}
	return 1
}

func (s *Store) expired(i Info) bool { return !s.config.Now().Before(i.Expires) }

// retire removes a snapshot unless it is in use.
func (s *Store) retire(ctx context.Context, info Info, why Reason) (gone bool, err error) {
	f, err := s.open(ctx, info.Run, unix.LOCK_EX)
	switch {
	case errors.Is(err, ErrNotFound):
		return true, nil
	case errors.Is(err, ErrClaimed):
		return false, nil
	case err != nil:
		return false, err
	}
	defer f.Close()
	if s.config.Removing != nil {
		if err := s.config.Removing(ctx, info, why); err != nil {
			return false, fmt.Errorf("keep the paused state of run %s: %w", info.Run, err)
		}
	}
	if err := s.remove(f, s.path(info.Run)); err != nil {
		return false, err
	}
	return true, nil
}
