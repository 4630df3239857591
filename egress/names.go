package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/custody-project/custody/netpolicy"
)

// ErrNamesSpent means that the sandbox has used all synthetic addresses.
var ErrNamesSpent = errors.New("this sandbox has no free synthetic address")

// nameTable maps synthetic addresses to names. A mapping does not change during the sandbox's life, whatever the policy.
type nameTable struct {
	mu    sync.Mutex // guards the fields below
	addrs map[string]netip.Addr
	names map[netip.Addr]entry
	next  netip.Addr
}

type entry struct {
	name string
	seq  uint64 // of the latest answer with the address; 0 until the first is durable
}

func newNameTable() *nameTable {
	return &nameTable{addrs: map[string]netip.Addr{}, names: map[netip.Addr]entry{}, next: netpolicy.FirstSynthetic}
}

// address returns the address of a name, and assigns one if it has none.
func (b *nameTable) address(name string) (netip.Addr, error) {
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

// answered stores the sequence number of the record of an answer with the name's address.
func (b *nameTable) answered(name string, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.addrs[name]; ok {
		b.names[a] = entry{name, seq}
	}
}

// Name returns the name of an address. ok is false until an answer with the address is durable.
func (b *nameTable) Name(a netip.Addr) (name string, seq uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.names[a.Unmap()]
	return e.name, e.seq, e.seq != 0
}

// issued returns the names whose address the guest has received, with their entries.
func (b *nameTable) issued() map[netip.Addr]entry {
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
