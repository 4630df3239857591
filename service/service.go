// Package service carries out runs for the users of a host, who need no privileges: a server that listens on a unix socket.
// Package remote has its client.
//
//	remote.Run (any user of the socket's group)              Server
//	  run, signal, resize, cancel      --------------------> session, run.Job
//	  terminal <-- attach, detach, notice, problem --------  run.Options
//	  stdin, stdout  <============= pipes ===============>   run.Console
//	                            privsep
//
// The socket is of the type SOCK_SEQPACKET. The kernel names the user at its other end. The server limits the sizes of requests, and how many
// clients and runs there are, of each user and in all. It assumes that a client is hostile: one that violates the protocol loses its
// connection, and its run is cancelled as if the client had been killed. The server makes all pipes itself, so that a client can neither
// block it nor pass it a terminal or a file.
//
// The service does not ask whether to trust a project file: a run is of a registered project, which the file can only narrow, or asks for
// no more than the defaults.
package service
