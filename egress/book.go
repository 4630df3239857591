package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/custody-project/custody/netpolicy"
)

// ErrNamesSpent means that the sandbox asked for more names than there are
// synthetic addresses.
var ErrNamesSpent = errors.New("every synthetic address of this sandbox stands for a name already")

// book maps synthetic addresses to the names that they stand for. Both stay together
// for the sandbox's life, whatever becomes of the policy.
type book struct {
	mu    sync.Mutex // guards what follows
	addrs map[string]netip.Addr
	names map[netip.Addr]entry
	next  netip.Addr
}

type entry struct {
	name string
	seq  uint64 // of the latest answer that gave the address; 0 before the first is durable
}

func newBook() *book {
	return &book{addrs: map[string]netip.Addr{}, names: map[netip.Addr]entry{}, next: netpolicy.FirstSynthetic}
}

// address returns the address of a name, a new one if it has none.
func (b *book) address(name string) (netip.Addr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.addrs[name]; ok {
		return a, nil
	}
	a := b.next
	if !netpolicy.Synthetic.Contains(a) {
		return netip.Addr{}, fmt.Errorf("%w: %d names", ErrNamesSpent, len(b.addrs))
	}
	b.next = a.Next()
	b.addrs[name], b.names[a] = a, entry{name: name}
	return a, nil
}

// answered notes the record of the answer that gave a name's address away.
func (b *book) answered(name string, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.addrs[name]; ok {
		b.names[a] = entry{name, seq}
	}
}

// Name returns the name that an address stands for, once the guest has it.
func (b *book) Name(a netip.Addr) (name string, seq uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.names[a.Unmap()]
	return e.name, e.seq, e.seq != 0
}

// told are the names whose address the guest has, with their entries.
func (b *book) told() map[netip.Addr]entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[netip.Addr]entry{}
	for a, e := range b.names {
		if e.seq != 0 {
			all[a] = e
		}
	}
	return all
}
