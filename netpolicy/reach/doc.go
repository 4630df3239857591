// Package reach limits where the sockets of a worker can send to, whatever runs in it: to the host's DNS servers, and at the ports of a
// policy's rules for names to addresses that the rules may have. Which addresses a name has is the worker's own knowledge, and not checked
// here.
//
//	worker's socket -- cgroup programs -- host's network
//	                       |
//	                  destinations: protocol, port, range -> denied, remote or named
package reach
