// Package dnsproxy is the resolver of one sandbox. It answers only queries that the policy allows, looks up no other
// names, and sends no answer before the record of it is durable.
//
//	UDP reader          TCP readers, a connection each
//	     \                 /
//	      parse, decide, post ----direct names----> workers: ask upstream, post
//	             |                                      |
//	             +------------------> queue <-----------+
//	                                    |
//	                                committer: one Sync for a batch, then for each
//	                                Names.Open and finally the answer
//
// Everything is bounded. When the record stalls, the committer waits, the queue fills, the readers stop, and the kernel
// drops further packets of the guest: the guest waits, and no event is lost. When all workers are busy, a query for a
// direct name is answered SERVFAIL immediately, and recorded.
//
// The content of an answer depends on the rule that names the name:
//
//	gateway   A: the synthetic address. AAAA, HTTPS, SVCB: nothing (NOERROR).
//	direct    A, AAAA: the upstream answer, without addresses that the rule does not
//	          allow. HTTPS, SVCB: nothing, so there is no ECH and no other port or name.
//	none      REFUSED, with an extended error (RFC 8914) that names rule, run and seq.
//
// All other types are refused. The resolver follows CNAMEs and records them; the guest receives the addresses as those
// of the name in its query.
package dnsproxy
