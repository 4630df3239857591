// Package dnsproxy is the resolver of one sandbox. It answers what the policy
// names, asks no one for anything else, and lets no answer leave before the record
// holds it.
//
//	UDP reader          TCP readers, a connection each
//	     \                 /
//	      parse, decide, post ----direct names----> workers: ask upstream, post
//	             |                                      |
//	             +------------------> queue <-----------+
//	                                    |
//	  committer: one Sync for all that wait, then for each
//	  Names.Open and, last of all, the answer
//
// Everything is bounded. When the record stalls the committer stops, the
// queue fills, the readers stop reading, and the kernel drops what the guest sends
// on: the guest waits, the record does not suffer. When the workers are busy a
// question for a direct name is answered SERVFAIL immediately, and recorded.
//
// What an answer holds depends on the rule that names the name:
//
//	gateway   A: the synthetic address. AAAA, HTTPS, SVCB: nothing (NOERROR).
//	direct    A, AAAA: what upstream says, less addresses that the rule does not
//	          allow. HTTPS, SVCB: nothing, so there is no ECH and no other port or name.
//	none      REFUSED, with an extended error (RFC 8914) that names rule, run and seq.
//
// Any other type is refused. CNAMEs are followed here and recorded, and the addresses
// given to the guest as those of the name it asked for.
package dnsproxy
