package sandbox

import (
	"sync"

	"github.com/custody-project/custody/guest/channel"
)

// running is the command of the current step.
type running struct {
	mu   sync.Mutex       // guards proc
	proc *channel.Process // nil between steps
}

func (r *running) current() *channel.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc
}

func (r *running) set(p *channel.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc = p
}
