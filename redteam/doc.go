// Package redteam tries to get out. It is a published suite of probes, each one
// a bypass of egress control that others were hit by or a near relation of one, and a
// judge that believes no one:
//
//	custody run --policy FILE -- python3 guest.py            (in the host's namespace of
//	+-------------------+                                     the world, see package world)
//	| sandbox           |      host           world            rest
//	|  guest.py: probes | ---> custody ------ resolver, ------ the attacker
//	+---------|---------+        |            servers          sees whatever comes
//	          | what it says     | the record    |                  |
//	          v                  v               v                  v
//	        blocked = no one outside saw anything of it, and the guest was told no
//	        recorded = an event of the attacked run accounts for it
//
// Each probe carries a token of its own, and where it can it aims at an address of
// its own, so that whatever is seen is laid at the right door; what is seen and fits no
// probe fails the suite as well. Controls show that allowed traffic passes and that the
// watchers see what there is.
//
// The probes run in scenes: a sandbox with rules of each sort, one with none, one
// whose policy is narrowed while flows are open, one whose custody is killed, project files that
// cannot be used, and, for what only a guest's kernel can put on its card, a fence without a VM.
package redteam
