// Package killtest kills what carries the record, again and again, while events
// flow, and checks that nothing was lost. It has tests only.
//
//	            kill -9           kill -9              kill -9           kill -9
//	               v                 v                    v                 v
//	events --> host writer --> nats-server (synced) --> ingester --> store: SQLite in the
//	   |       its own log                                           ingester, or ClickHouse
//	   v                                                             in a server
//	what it said was durable ------------- compared --------------------> rows
//
// All of them are processes of their own over loopback. A few rounds run in
// `go test`; CUSTODY_ROUNDS=200 (make torture) runs that many. CUSTODY_SEED
// repeats the times of the kills, as far as a machine can.
package killtest
