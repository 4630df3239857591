package outside

import "github.com/custody-project/custody/host"

// Processes are those that a process of root shares among its hosts. They are started when they are needed.
type Processes struct{ key *Web }

// New returns Processes. The caller closes them.
func New() *Processes { return &Processes{NewWeb()} }

// Host returns what speaks to other machines for a host: the Vault with its signing key has a process of its own, which alone gets the
// login that can sign.
func (p *Processes) Host() host.Outside {
	return host.Outside{NewWeb: func() host.Web { return NewWeb() }, Key: p.key, OpenStore: OpenStore}
}

// Close ends them.
func (p *Processes) Close() error { return p.key.Close() }
