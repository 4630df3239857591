// Package serve is the page and the API as a service of one host. It puts the parts below replay together: the gate of
// package access, the API of package api and the assets of package web, behind one listener.
//
// [Host] serves the runs of a host, and [Bundle.Serve] the one run of a bundle, for which the service needs no state of
// the machine. Both return when the context ends, or when no client has been connected for Options.Idle:
//
//	made --> open -- Options.Ready --> serving -- context done, or idle --> draining --> closed
//
// Draining ends streams and waits up to 10 s for other requests. The parts are then closed in the order API, gate, access log, so that what is
// recorded last is durable before the function returns.
//
// # Goroutines
//
// A service has one goroutine of its own, which closes the records of runs whose process died. The service waits for it before it
// returns. The API and the gate own the goroutines for live tails, verification, export jobs and withdrawn credentials, and wait for them in Close.
// Two timers are stopped with the service: the one of Options.Idle, which runs while no connection is open, and the one that removes the login
// link's file.
package serve
