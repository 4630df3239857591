// Package fence is the wall around one sandbox: a network namespace that nothing
// leads out of, the guest's TAP in it, and what decides on each of its packets.
//
//	guest ==virtio== tap0 | namespace                                          | site
//	                      |                                                    |
//	  gate -> from_guest  |  nft: input    marked -> resolver, gateway sockets |
//	  gate -> to_guest    |       output   marked -> tap0                      |
//	                      |       forward  (direct only) tap0 <-> up0 ========= cust<n>, nft, NAT
//	                      |                        gate -> from_uplink         |
//
// Two walls stand behind each other. The first is made of eBPF programs on TCX or clsact, the gates,
// which belong to the devices themselves. A gate hands each packet to a program of
// the policy, which passes what is allowed and marks it with a number that no one in the
// guest knows. The table of those programs is emptied by the kernel when this
// process dies, and a gate with no one to hand packets to drops them all. The second is
// a table of nft in the namespace that drops what does not carry the mark, whatever
// became of the programs.
//
// The namespace has no name and no mount: descriptors alone hold it, so the
// kernel removes it with its TAP, cables, tables and programs when the last process
// that has one is gone.
//
// # What passes
//
// Out of the guest: ARP of its own address for the gateway's; TCP and UDP over IPv4 and IPv6, from its own addresses,
// without options or extension headers, to the resolver, to what Open opened, or to a range that a rule of the policy
// names, less the site's own addresses and those of no single host. They are whole, but for UDP datagrams of direct
// flows: those may come in fragments, in their order, which the namespace puts together. A TCP flow begins with a SYN.
// Into the guest: the other direction of those flows, and the ICMP errors of path MTU discovery that quote one. All
// else is dropped, counted and reported; see Event and Denials.
//
// Every packet is judged under the policy in force: a flow that began under another
// generation is looked at again with its next packet, and ends if nothing allows
// it any more.
package fence
