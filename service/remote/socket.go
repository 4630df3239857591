package remote

import "os"

// DefaultSocket is where the service listens.
const DefaultSocket = "/run/custody/custody.sock"

// SocketEnv names the socket that clients use in place of DefaultSocket; "none": they use no service.
const SocketEnv = "CUSTODY_SOCKET"

// Socket returns the path of the service's socket, "" if commands are to be carried out without the service: $CUSTODY_SOCKET, else
// DefaultSocket if it exists and no other state is chosen with $CUSTODY_HOME.
func Socket(getenv func(string) string) string {
	switch path := getenv(SocketEnv); {
	case path == "none":
		return ""
	case path != "":
		return path
	case getenv("CUSTODY_HOME") != "":
		return ""
	}
	if _, err := os.Stat(DefaultSocket); err != nil {
		return ""
	}
	return DefaultSocket
}

// ServiceSocket returns the path of the socket of the service that this host has.
func ServiceSocket(getenv func(string) string) string {
	if path := getenv(SocketEnv); path != "" && path != "none" {
		return path
	}
	return DefaultSocket
}

// NotServed means that an ordinary user has called a command that needs the host's state, on a host with a service, which does not carry
// it out.
type NotServed struct{ Command string }

// Error implements error.
func (e *NotServed) Error() string {
	return e.Command + " needs the state of this host, and the service does not carry it out for its users"
}

// Hint returns what to do about it.
func (e *NotServed) Hint() string {
	return "have an administrator call it as root; with " + SocketEnv + "=none it uses a state of your own in place of the host's"
}
