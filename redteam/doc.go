// Package redteam attacks a sandbox. It is a published suite of probes, each a known
// bypass of egress control or a variant of one, and a judge that trusts neither the
// guest nor the record:
//
//	custody run --policy FILE -- python3 guest.py            (in the host's namespace of the
//	+-------------------+                                     simulated internet, see package simnet)
//	| sandbox           |      host           world            rest
//	|  guest.py: probes | ---> custody ------ resolver, ------ the attacker
//	+---------|---------+        |            servers          logs all packets
//	          | its report       | the record    |                  |
//	          v                  v               v                  v
//	        blocked = nothing of it was observed outside, and the guest got a refusal
//	        recorded = an event of the attacked run accounts for it
//
// Each probe carries a token of its own, and where possible it has a target address of
// its own, so that each observed packet is attributed to one probe. A packet that fits no
// probe fails the suite. Controls show that allowed traffic passes and that the
// watchers observe it.
//
// The probes run in scenes: a sandbox with rules of each sort, one with none, one
// whose policy is narrowed while flows are open, one whose custody is killed, project files that
// cannot be used, and, for what only a guest's kernel can put on its card, a fence without a VM.
package redteam
