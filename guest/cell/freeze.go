package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/custody-project/custody/guest/channel"
)

var _ channel.Holder = (*member)(nil)

// Hold implements channel.Holder.
func (m *member) Hold() { m.shell.pipes.hold() }

// Release implements channel.Holder.
func (m *member) Release() { m.shell.pipes.release() }

// freezeTime bounds how long the processes of the cells may take to stop: one that waits for a disk cannot be stopped meanwhile.
const freezeTime = 10 * time.Second

// Freeze stops all processes of the cells, and returns when they have stopped. No command may be started meanwhile. After an error they run.
func (b *Block) Freeze() error {
	b.work.Wait()
	b.session.settle()
	if err := b.group.setFrozen("1"); err != nil {
		return err
	}
	until := time.Now().Add(freezeTime)
	for wait := 50 * time.Microsecond; b.group.count("cgroup.events", "frozen") != 1; wait = min(2*wait, 10*time.Millisecond) {
		if time.Now().After(until) {
			return errors.Join(fmt.Errorf("the processes of the cells did not stop within %s", freezeTime), b.Thaw())
		}
		time.Sleep(wait)
	}
	return nil
}

// Thaw lets the processes run again.
func (b *Block) Thaw() error { return b.group.setFrozen("0") }

// setFrozen writes the state of cgroup v2's freezer.
func (g *group) setFrozen(state string) error {
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.freeze"), []byte(state), 0); err != nil {
		return fmt.Errorf("freeze the cells: %w", err)
	}
	return nil
}

// settle returns when the process of the next command has been made.
func (l *lazySession) settle() {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s != nil {
		s.preparing.Wait()
	}
}
