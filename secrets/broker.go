package secrets

import (
	"context"
	"time"
)

// TTL is the lifetime of a credential that is not renewed.
const TTL = 60 * time.Second

// Binding is a secret of the project file.
type Binding struct {
	Name string
	From string // its source
	// Deliver is how a step receives the secret; if empty, the secret is only masked.
	Deliver Deliver
	// Hosts reports whether the secret may be sent to a host in a request that the gateway inspects; nil: to every host
	// that the policy allows, unless Deliver.Header is set.
	Hosts func(host string) bool
}

// Deliver is how a step receives a credential. With Header, the value never enters the sandbox, and Env and File, if
// set, contain a placeholder, which only the gateway replaces.
type Deliver struct {
	Header string // name of the header field that the gateway adds to requests of rules with this credential
	Env    string // name of an environment variable
	File   string // name of a file in the step's tmpfs
	Token  string // name of an environment variable for a Vault token that can only read the source's path
}

// Request is a step's request to a broker.
type Request struct {
	Run, Step string
	Bindings  []Binding     // the ones that this broker serves
	Limit     time.Duration // the step's maximum duration: renewals do not extend beyond it
	Dir       string        // the base of relative sources in the project file
}

// Grant has the credentials that a broker has minted for one step. They expire TTL after the last renewal. Its methods
// are safe for concurrent use, and return soon after their context is done.
type Grant interface {
	// Values returns a value for each binding. The caller may change the bytes.
	Values() map[string][]byte
	// Accessor returns the broker's name of the grant, with which it can be revoked but not used. It is never recorded
	// in clear.
	Accessor() string
	Leases() int // number of leases of dynamic engines
	Expires() time.Time
	// Renew extends the grant to TTL from now, but not beyond the request's limit. It fails if the broker does not
	// confirm the renewal, with ErrLost if retries cannot succeed.
	Renew(ctx context.Context) error
	// Revoke returns when the broker has confirmed that the grant and its leases are revoked. It may be called
	// repeatedly.
	Revoke(ctx context.Context) error
	// Misuse returns a channel with the uses of the grant that cannot be its owner's, as far as the broker can detect
	// them; nil: it cannot. Revoke closes the channel.
	Misuse() <-chan string
}

// Broker mints grants. It is safe for concurrent use.
type Broker interface {
	// Name returns the broker's name in the record: local, vault.
	Name() string
	// Mint fails if it cannot grant all bindings, with exactly the requested lifetime. It returns soon after ctx is
	// done. All bindings with the schemes of one broker are in one request.
	Mint(ctx context.Context, r Request) (Grant, error)
}

// Reader is a Broker that can return values without minting: from sources that can be read without side effects that
// their owner would notice.
type Reader interface {
	Broker
	// ReadValues returns the values of the bindings with such sources, and the errors of the others with such sources. A
	// source that does not exist is in neither. The caller may change the bytes.
	ReadValues(r Request) (values map[string][]byte, errs map[string]error)
}
