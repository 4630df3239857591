package serve

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/custody-project/custody/fleet"
	"github.com/custody-project/custody/host"
	"github.com/custody-project/custody/replay/access"
	"github.com/custody-project/custody/replay/api"
	"github.com/custody-project/custody/store"
)

// DefaultLinkFor is how long a login link is valid unless Options.LinkFor is set.
const DefaultLinkFor = 10 * time.Minute

// Options are what both kinds of service need. The functions may be called from several goroutines concurrently.
type Options struct {
	// Config is the section serve: of host.yaml with its defaults. Its address is replaced by the listener's.
	Config access.Config
	// Exports are the formats in which records can be downloaded.
	Exports []api.Export
	// LinkFor is how long the login link is valid; 0: DefaultLinkFor. The link works once.
	LinkFor time.Duration
	// LinkToFile has the login link written to a file that only its owner can read, in place of Address.Link. It is for
	// services whose output is kept, such as in the systemd journal.
	LinkToFile bool
	// Idle ends the service when no client has been connected for this long; 0: never.
	Idle time.Duration
	// Ready is called once, before the first connection is accepted. An error ends the service and is returned.
	Ready func(Address) error
	// Notice is called with non-fatal problems, in a sentence for the user.
	Notice func(string)
	// Log gets failed requests and their causes, which a client does not see; nil: nothing is logged.
	Log *slog.Logger
}

// HostOptions are Options of a service for the runs of a host.
type HostOptions struct {
	Options
	// Run is what the login link opens, and its tenant is the first of the session; without an ID: the list of runs.
	Run store.Run
	// Version is the program's, for reports and the access log.
	Version string
	// Access records the accesses, and is closed by the caller after the service; nil: the service opens its own log.
	Access *host.AccessLog
	// Sandboxes are the live sandboxes, which the caller closes after the service; nil: there are none.
	Sandboxes *fleet.Fleet
	// CloseDead closes the records of runs whose process died. It is called every 30 s, by one goroutine.
	CloseDead func()
}

// Address is where a service is reached.
type Address struct {
	// URL is the page's, and ends with a slash.
	URL string
	// Link is URL with the place to open and, if a login from this machine is configured, a one-time token. It is empty if File is set.
	Link string
	// File is the path of the file with the login link; "": there is none.
	File string
	// LinkFor is how long the login link is valid.
	LinkFor time.Duration
}

// Listen listens on a TCP address, such as 127.0.0.1:8333. Port 0 takes any free one.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var l net.ListenConfig
	return l.Listen(ctx, "tcp", address)
}

// Host serves the runs of h to clients of l until ctx ends or the service is idle, and closes l. Every access is recorded in
// an access log, which is closed when Host returns.
func Host(ctx context.Context, h *host.Host, l net.Listener, o HostOptions) error {
	s := newService(o.Options, l, h.Serve())
	b := &backend{host: h, options: o}
	if o.Run.ID != "" {
		s.path = "/runs/" + o.Run.ID
	}
	s.every = o.CloseDead
	return s.run(ctx, l, b.open)
}
