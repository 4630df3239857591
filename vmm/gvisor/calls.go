package gvisor

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/vmm/gvisor/trace"
)

// calls follows the calls of execve of each thread. gVisor reports no result of a call that fails while the program is
// loaded, and it silently drops each message with a string that is not UTF-8, such as a path, an argument or a variable.
// Therefore a call without an exec either failed or is hidden, and the record must declare it.
//
//	            Attempt            Raw, errno 0             Exec
//	(no call) -----------> begun ---------------> returned ------> (no call): recorded as an exec
//	    |                    | Raw, errno > 0        |  any other message of the thread, or the step's end
//	    |                    +------> (no call)      +------> declared
//	    +-- Raw, errno 0: the Attempt was dropped ---^
type calls struct {
	threads map[int]call
	unnamed uint64   // calls without a result of which the path is not known either
	named   uint64   // other calls without a result
	paths   []string // some of the paths of those
}

// call is a call of execve that a thread has made.
type call struct {
	path     string // "": not known
	returned bool
}

// maxPaths bounds the paths that a declaration names, and maxPath the bytes of each.
const (
	maxPaths = 8
	maxPath  = 256
)

func newCalls() *calls { return &calls{threads: map[int]call{}} }

// note processes a message.
func (c *calls) note(m trace.Message) {
	last, ok := c.threads[m.Thread]
	switch {
	case m.Attempt != nil:
		c.unresolved(m.Thread)
		c.threads[m.Thread] = call{path: m.Attempt.Path}
	case m.Raw != nil && !isExec(m.Raw.Number):
	case m.Raw != nil && m.Raw.Errno != 0, m.Exec != nil:
		if !last.returned || m.Exec != nil {
			delete(c.threads, m.Thread)
		}
	case m.Raw != nil:
		if last.returned { // by an earlier call
			c.unresolved(m.Thread)
			last.path = ""
		}
		c.threads[m.Thread] = call{path: last.path, returned: true}
	case ok && last.returned:
		c.unresolved(m.Thread)
	}
}

// search processes a message of a step's main process before its first exec. Init searches PATH for the
// command: the calls before the last one have failed.
func (c *calls) search(m trace.Message) {
	if c.threads[m.Thread].returned && (m.Attempt != nil || m.Raw != nil) {
		delete(c.threads, m.Thread)
	}
	c.note(m)
}

func isExec(number uint64) bool { return number == unix.SYS_EXECVE || number == unix.SYS_EXECVEAT }

// unresolved counts the call of a thread that has returned without an exec.
func (c *calls) unresolved(thread int) {
	last, ok := c.threads[thread]
	delete(c.threads, thread)
	switch {
	case !ok || !last.returned:
	case last.path == "":
		c.unnamed++
	default:
		c.named++
		path := fmt.Sprintf("%.*q", maxPath, last.path)
		for _, known := range c.paths {
			if known == path {
				return
			}
		}
		if len(c.paths) < maxPaths {
			c.paths = append(c.paths, path)
		}
	}
}

// take returns the declarations of the calls without a result since the last take.
func (c *calls) take() []audit.Gap {
	for thread := range c.threads {
		c.unresolved(thread)
	}
	var list []audit.Gap
	if c.unnamed > 0 {
		list = append(list, audit.Gap{Stage: audit.StageTrace, Count: c.unnamed, What: "calls of execve",
			Cause: "gVisor does not report an execve with a path, an argument or a variable that is not UTF-8"})
	}
	if c.named > 0 {
		list = append(list, audit.Gap{Stage: audit.StageDriver,
			What:  fmt.Sprintf("the result of %d calls of execve, among them of %s", c.named, strings.Join(c.paths, ", ")),
			Cause: "gVisor reports neither an execve that failed nor one of a program whose path or environment is not UTF-8"})
	}
	*c = *newCalls()
	return list
}

// declareCalls records the calls of execve that have no result, of a step and of the processes that no running step has.
func (o *observer) declareCalls(ctx context.Context, step string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, c := range map[string]*calls{step: o.calls[step], "": o.others} {
		if c == nil {
			continue
		}
		for _, gap := range c.take() {
			if err := o.post(ctx, name, audit.Event{Kind: audit.KindGap, Gap: &gap}); err != nil {
				return err
			}
		}
	}
	return nil
}
