/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Fragmented UDP datagrams. Fragments must be in order, without gaps and overlaps, and are
 * allowed by the ports of the first: so the fragments that have passed are the start of one
 * allowed datagram. A fragment that is out of order ends its datagram.
 *
 * The programs cannot know how the receiving kernel reassembles them: it may have dropped a
 * datagram that is complete here, and use the fragments of the next one for it. So each
 * fragment carries a mark of its generation. The kernel keeps the first fragment's mark when
 * it reassembles a datagram in the namespace, and nftables drops marks of other generations.
 * So all forwarded datagrams have ports that the policy in force allows.
 */
#pragma once

#include "verdict.h"

static __always_inline struct datagram_key datagram_key(struct packet *p, const bool out)
{
	struct datagram_key k = {
		.peer = {p->key.peer[0], p->key.peer[1], p->key.peer[2], p->key.peer[3]},
		.id = p->part.id,
		.family = p->key.family,
		.out = out,
	};
	return k;
}

/* Checks that a fragment is the next one of its datagram, and sets the datagram's ports. */
static __always_inline u32 place(struct packet *p, const bool out)
{
	struct datagram_key k = datagram_key(p, out);
	struct part *part = &p->part;
	struct datagram *d;

	if (synthetic(&p->key))
		return FRAGMENT;
	if (!part->begin)
		return part->end < part->size ? ALLOWED : MALFORMED;
	d = bpf_map_lookup_elem(&datagrams, &k);
	if (!d)
		return FRAGMENT;
	p->key.guest_port = d->guest_port;
	p->key.peer_port = d->peer_port;
	if (d->next == part->begin && (part->more ? part->end < d->size : part->end == d->size))
		return ALLOWED;
	bpf_map_delete_elem(&datagrams, &k);
	return FRAGMENT;
}

/* Stores that a fragment passes. Of two concurrent fragments with the same offset, the later gets false. */
static __always_inline bool take_place(struct packet *p, const bool out)
{
	struct datagram_key k = datagram_key(p, out);
	struct part *part = &p->part;
	struct datagram *d;

	if (!part->begin) {
		struct datagram fresh = {
			.guest_port = p->key.guest_port, .peer_port = p->key.peer_port, .size = part->size, .next = part->end};

		return !bpf_map_update_elem(&datagrams, &k, &fresh, BPF_ANY);
	}
	d = bpf_map_lookup_elem(&datagrams, &k);
	if (!d || __sync_val_compare_and_swap(&d->next, part->begin, part->end) != part->begin)
		return false;
	if (!part->more)
		bpf_map_delete_elem(&datagrams, &k);
	return true;
}
