// Package lifecycle decides when a sandbox is paused, archived and deleted. It has no clock and changes nothing.
package lifecycle

import (
	"errors"
	"fmt"
	"time"
)

// State is what a sandbox is.
//
//	          Pause           Archive
//	Running --------> Paused ---------> Archived
//	  |  ^               | ^               | |
//	  |  |    resume     | |    fetch      | | Delete
//	  |  +---------------+ +---------------+ |
//	  | Delete           | Delete            |
//	  +------------------+-------------------+----> Deleted
//
// A resume and a fetch are not decided here: someone uses the sandbox.
type State string

// The states.
const (
	Running  State = "running"
	Paused   State = "paused"
	Archived State = "archived"
	Deleted  State = "deleted"
)

// Action is a transition.
type Action string

// The actions. None is that of what is deleted.
const (
	None    Action = ""
	Pause   Action = "pause"
	Archive Action = "archive"
	Delete  Action = "delete"
)

// Policy is when the actions are due.
type Policy struct {
	Pause   time.Duration // after the last activity; 0: never
	Archive time.Duration // after the pause; 0: never
	Delete  time.Duration // after the pause; 0: not before Keep
	Keep    time.Duration // after the creation, in any state: then it is deleted; 0: DefaultKeep
}

// Defaults and limits of a Policy.
const (
	Day           = 24 * time.Hour
	DefaultDelete = 7 * Day  // of a Policy without Archive
	ArchiveDelete = 30 * Day // of one with it
	DefaultKeep   = 90 * Day
	MinPause      = 10 * time.Second
	MinArchive    = time.Minute
	MinDelete     = time.Minute
	MaxKeep       = 366 * Day
)

// Default returns the policy of who chooses none: nothing is paused or archived.
func Default() Policy { return Policy{Delete: DefaultDelete, Keep: DefaultKeep} }

// Check returns an error if a time is out of bounds. An action that is due after the deletion is none: it does not happen.
func (p Policy) Check() error {
	for _, v := range []struct {
		name         string
		value, least time.Duration
	}{{"pause", p.Pause, MinPause}, {"archive", p.Archive, MinArchive}, {"delete", p.Delete, MinDelete}, {"keep", p.Keep, MinDelete}} {
		if v.value != 0 && (v.value < v.least || v.value > MaxKeep) {
			return fmt.Errorf("%s is %v: give %v to %v", v.name, v.value, v.least, MaxKeep)
		}
	}
	if p.Keep == 0 {
		return errors.New("keep is missing")
	}
	return nil
}

// Status is what Next decides about.
type Status struct {
	State   State
	Created time.Time // of the sandbox
	Active  time.Time // if it is running: when it was last active; zero: it is active
	Paused  time.Time // if it is paused or archived: when it was paused
}

// Next returns the next action, and when it is due, which can be in the past. Of several that are due it returns the last one, so that what is to be
// deleted is not archived first.
func Next(p Policy, s Status, now time.Time) (Action, time.Time) {
	if s.State == Deleted {
		return None, time.Time{}
	}
	end := p.Deadline(s)
	action, at := Delete, end
	switch {
	case s.State == Running && p.Pause > 0 && !s.Active.IsZero():
		action, at = Pause, s.Active.Add(p.Pause)
	case s.State == Paused && p.Archive > 0:
		action, at = Archive, s.Paused.Add(p.Archive)
	}
	if !at.Before(end) || !now.Before(end) {
		return Delete, end
	}
	return action, at
}

// Deadline returns when the sandbox is deleted if no one uses it. It is the expiry of its snapshot.
func (p Policy) Deadline(s Status) time.Time {
	keep := p.Keep
	if keep == 0 {
		keep = DefaultKeep
	}
	end := s.Created.Add(keep)
	if (s.State == Paused || s.State == Archived) && p.Delete > 0 {
		if at := s.Paused.Add(p.Delete); at.Before(end) {
			return at
		}
	}
	return end
}
