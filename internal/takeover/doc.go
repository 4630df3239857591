// Package takeover makes system calls in another process, as an attacker does who has taken it over: with its ids, capabilities, namespaces,
// root directory, descriptors and seccomp filters. It is for tests, needs root, and works on amd64.
package takeover
