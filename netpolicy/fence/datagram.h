/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * UDP datagrams in fragments. They pass in their order, without a gap and without an
 * overlap, each judged by the ports of the first: what has passed is the beginning of one
 * datagram that is allowed. One that is out of place ends its datagram.
 *
 * What the receiving kernel makes of them is not for these programs to know: it may have
 * given up a datagram that is whole here, and take the next one's fragments for it. So each
 * carries a mark of its generation, of which the kernel, when it puts a datagram together in
 * the namespace, leaves the first fragment's, and the table of nft takes none of another
 * generation: the ports that are forwarded are some that the policy in force allows.
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

/* Whether a fragment is the next one of its datagram; gives it the datagram's ports. */
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

/* Takes note of a fragment that may pass. It says false to the slower of two that want the same place. */
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
