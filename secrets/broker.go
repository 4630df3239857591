package secrets

import (
	"context"
	"time"
)

// TTL is how long a credential lives unless it is renewed.
const TTL = 60 * time.Second

// Binding is a secret as the project's file describes it.
type Binding struct {
	Name string
	From string // its source
	// Deliver is how a step gets it; if empty, the secret is only masked.
	Deliver Deliver
	// Hosts reports whether the secret may be sent to a host in a request that the gateway can read; nil: to every host
	// that the policy allows, unless Deliver.Header is set.
	Hosts func(host string) bool
}

// Deliver is how a step gets a credential. With Header, the value never enters the sandbox, and Env and File, if set,
// hold a placeholder that is useless elsewhere.
type Deliver struct {
	Header string // name of the header that the gateway puts into requests of rules with this credential
	Env    string // name of an environment variable
	File   string // name of a file in the step's own tmpfs
	Token  string // name of an environment variable for a Vault token that can read the source's path, and nothing else
}

// Request is what a step asks a broker for.
type Request struct {
	Run, Step string
	Bindings  []Binding     // all of one broker's
	Limit     time.Duration // how long the step can last: no renewal goes beyond it
	Dir       string        // where relative sources of the project's file begin
}

// Grant is what a broker minted for one step, dead within TTL of the last renewal.
// Its methods may be called concurrently, and return soon after their context is done.
type Grant interface {
	// Values has a value for each binding. The caller may change the bytes.
	Values() map[string][]byte
	// Accessor names the grant at the broker: it can revoke it there, and not read with it. It is never recorded in clear.
	Accessor() string
	Leases() int // of dynamic engines that hang on it
	Expires() time.Time
	// Renew makes the grant live for TTL from now, but never beyond the request's limit.
	// It fails when the broker does not confirm it, with ErrLost when it is of no use to ask again.
	Renew(ctx context.Context) error
	// Revoke returns when the broker has confirmed that grant and leases are dead. Calling it again does no harm.
	Revoke(ctx context.Context) error
	// Misuse reports each use of the grant that its owner cannot have made, as far as the broker can detect it; nil: the
	// broker cannot. It is closed with Revoke.
	Misuse() <-chan string
}

// Broker mints grants. It is safe for concurrent use.
type Broker interface {
	// Name is how the record calls it: local, vault.
	Name() string
	// Mint fails rather than give less, or anything that lives longer. It returns soon after
	// ctx is done. Bindings whose sources have schemes that one broker serves come in one request.
	Mint(ctx context.Context, r Request) (Grant, error)
}

// Reader is a Broker that can return values without minting anything: where reading a source has no effect, and none
// that its owner would see.
type Reader interface {
	Broker
	// ReadValues returns the values of those bindings whose sources can be read so, and why others with
	// such a source could not be. A source that is not there is neither. The caller may change the bytes.
	ReadValues(r Request) (values map[string][]byte, errs map[string]error)
}
