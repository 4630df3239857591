package wal

import "sync"

// notifier calls OnStall and OnResume alternately. It stores a state, not a queue: a stall that began and ended while a
// callback was running is reported once, with both callbacks.
//
//	             stalled               OnStall returned, resumed
//	(nothing) ----------> to be reported ------------------------> OnResume --> (nothing)
type notifier struct {
	onStall  func(error)
	onResume func()

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond
	untold  error // a stall that OnStall has not been called for
	now     bool  // currently stalled
	stopped bool
}

func (n *notifier) init(o Options) {
	n.onStall, n.onResume = o.OnStall, o.OnResume
	n.changed = sync.NewCond(&n.mu)
}

func (n *notifier) stalled(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.untold, n.now = err, true
	n.changed.Signal()
}

func (n *notifier) resumed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = false
	n.changed.Signal()
}

func (n *notifier) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
	n.changed.Signal()
}

// run calls the callbacks until stop. A stall that has not ended gets no OnResume.
func (n *notifier) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		for n.untold == nil && !n.stopped {
			n.changed.Wait()
		}
		if n.untold == nil {
			return
		}
		n.tellStall()
		for n.now && !n.stopped {
			n.changed.Wait()
		}
		if n.now {
			return
		}
		n.tellResume()
	}
}

// tellStall releases mu during the call.
func (n *notifier) tellStall() {
	err := n.untold
	n.untold = nil
	n.mu.Unlock()
	defer n.mu.Lock()
	if n.onStall != nil {
		n.onStall(err)
	}
}

func (n *notifier) tellResume() {
	n.mu.Unlock()
	defer n.mu.Lock()
	if n.onResume != nil {
		n.onResume()
	}
}
