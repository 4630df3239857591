// Package fence isolates the network of one sandbox: a network namespace with the guest's TAP and without other links,
// and the filters for each of its packets.
//
//	guest ==virtio== tap0 | namespace                                          | host
//	                      |                                                    |
//	  gate -> from_guest  |  nft: input    marked -> resolver, gateway sockets |
//	  gate -> to_guest    |       output   marked -> tap0                      |
//	                      |       forward  (direct only) tap0 <-> up0 ========= cust<n>, nft, NAT
//	                      |                        gate -> from_uplink         |
//
// There are two packet filters. The first consists of eBPF programs on TCX or clsact, the gates, which belong to the
// devices. A gate passes each packet to a program of the policy (a tail call), which passes allowed packets and marks
// them with a random number that the guest does not have. The kernel empties the table of those programs when the Fence's
// process ends, and a gate without a program drops all packets. The second filter is an nftables table in the namespace
// that drops packets without the mark, whatever the state of the programs.
//
// Only a Namespace needs privileges. The Fence, which enforces a policy with the programs' maps, can be in another process
// (Open).
//
// The namespace has no name and no mount: only descriptors refer to it, so the kernel removes it with its TAP, links,
// tables and programs when the last process with such a descriptor has ended.
//
// # What passes
//
// From the guest: ARP for the gateway's addresses, from its own; TCP and UDP over IPv4 and IPv6, from its own addresses,
// without options or extension headers, to the resolver, to addresses that Open opened, or to a range that a rule of the
// policy names, except for the host's addresses and those that are not unicast. The packets must not be fragments,
// except for UDP datagrams of direct flows, whose fragments must be in order, and which the namespace reassembles. A TCP
// flow begins with a SYN. To the guest: the other direction of those flows, and the ICMP errors of path MTU discovery
// that quote one. All other packets are dropped, counted and reported; see Event and Denials.
//
// The policy in force applies to every packet: the next packet of a flow that was allowed under another generation is
// checked again, and the flow ends if no rule allows it.
package fence
