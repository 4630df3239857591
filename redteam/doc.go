// Package redteam attacks a sandbox. It is a published suite of probes, each a known bypass of egress control or a variant
// of one. It decides from its own observations outside whether a probe was blocked, and trusts neither the guest nor the
// record:
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
// Each probe has its own token and, where possible, its own target address, by which observed packets are attributed to
// it. A packet that fits no probe fails the suite. Controls show that allowed traffic passes and that the watchers
// observe it.
//
// The probes run in scenes: a sandbox with rules of each kind, one without rules, one whose policy is narrowed while flows
// are open, one whose custody is killed, steps with credentials, invalid project files and, for frames that only a
// guest's kernel can send, a fence without a VM.
package redteam
