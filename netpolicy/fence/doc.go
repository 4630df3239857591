// Package fence is the wall around one sandbox: a network namespace that nothing
// leads out of, the guest's TAP in it, and what decides on each of its packets.
//
//	guest ==virtio== tap0 | namespace                                          | site
//	                      |                                                    |
//	  from_guest ->  wall |  nft: input    marked -> resolver, gateway sockets |
//	  to_guest   ->  wall |       output   marked -> tap0                      |
//	                      |       forward  (direct only) tap0 <-> up0 ========= cust<n>, nft, NAT
//	                      |                        from_uplink -> wall         |
//
// Two walls stand behind each other. The first is a chain of TCX programs. A
// policy program passes what is allowed and marks it with a number that nobody in the
// guest knows; it hangs on a link that only this process holds. Behind it stands the
// wall, which drops everything and belongs to the device itself: when the process dies,
// the link goes and the wall stays. The second is a table of nft in the namespace
// that drops what does not carry the mark, whatever became of the programs.
//
// The namespace has no name and no mount: descriptors alone hold it, so the
// kernel removes it with its TAP, cables, tables and programs when the last process
// that has one is gone.
//
// # What passes
//
// Out of the guest: ARP of its own address for the gateway's; TCP and UDP over
// IPv4 and IPv6, from its own addresses, whole, without options or extension headers,
// to the resolver, to what Open opened, or to a range that a rule of the policy names.
// A TCP flow begins with a SYN. Into the guest: the other direction of those flows, and
// the ICMP errors of path MTU discovery that quote one. All else is dropped, counted and
// told; see Event and Denials.
//
// Every packet is judged under the policy in force: a flow that began under another
// generation is looked at again with its next packet, and ends if nothing allows
// it any more.
package fence
