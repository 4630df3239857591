/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Decides on flows, counts their packets and reports events. */
#pragma once

#include "packet.h"

static __always_inline struct event *record(u32 kind, struct packet *p)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->key = p->key;
	e->time = bpf_ktime_get_ns();
	return e;
}

static __always_inline void report(u32 kind, struct packet *p, struct flow *f)
{
	struct event *e;

	if (f->permit == PERMIT_RESOLVER)
		return; /* the resolver records each query itself */
	e = record(kind, p);
	if (!e)
		return;
	e->flow = *f;
	bpf_ringbuf_submit(e, 0);
}

static __always_inline bool take_token(const u32 direction, u64 now)
{
	struct bucket *b = &buckets[direction];
	u64 since = now - b->filled, tokens = b->tokens;

	if (since > 1000000) {
		tokens += (since > 10000000000ULL ? 10000000000ULL : since) * RATE / 1000000;
		if (tokens > BURST * 1000)
			tokens = BURST * 1000;
		b->filled = now;
	}
	if (tokens < 1000) {
		b->tokens = tokens;
		return false;
	}
	b->tokens = tokens - 1000;
	return true;
}

/*
 * Returns the smaller of size, which is at least 1, and QUOTE. Not all verifiers derive
 * bounds from a comparison, but all do from a mask. The barriers prevent the compiler from
 * removing the mask, which it can prove to have no effect.
 */
static __always_inline u32 bounded(u32 size)
{
	_Static_assert((QUOTE & (QUOTE - 1)) == 0, "QUOTE is a power of two");

	if (size > QUOTE)
		size = QUOTE;
	size--;
	asm volatile("" : "+r"(size));
	size &= QUOTE - 1;
	asm volatile("" : "+r"(size));
	return size + 1;
}

static __always_inline int deny(struct __sk_buff *skb, struct packet *p, u32 why, const bool out, u64 now)
{
	u32 size = skb->len, offset = sizeof(struct ethernet);
	struct event *e;
	u64 total;

	if (why >= REASONS)
		why = MALFORMED;
	total = __sync_fetch_and_add(&denials[why], 1) + 1;
	if (!take_token(!out, now))
		return TCX_DROP;
	e = record(EVENT_DENY, p);
	if (!e)
		return TCX_DROP;
	e->reason = why;
	e->total = total;
	e->inbound = !out;
	if (size > offset) {
		size = bounded(size - offset);
		if (!bpf_skb_load_bytes(skb, offset, e->quote, size))
			e->size = size;
	}
	bpf_ringbuf_submit(e, 0);
	return TCX_DROP;
}

static __always_inline bool pure_syn(u32 flags)
{
	return (flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_PSH | TCP_ACK | TCP_URG)) == TCP_SYN;
}

static __always_inline bool over(struct flow *f)
{
	const u64 both = STATE_FIN_OUT | STATE_FIN_IN;

	return (f->state & (STATE_RST | STATE_REVOKED)) || (f->state & both) == both;
}

static __always_inline bool to_resolver(struct flow_key *k)
{
	return k->family == 4 && k->peer[0] == gateway4 && k->peer_port == resolver_port;
}

static __always_inline bool synthetic(struct flow_key *k)
{
	return k->family == 4 && (k->peer[0] & synthetic4_mask) == synthetic4;
}

/* the id of the range rule that allows this, or 0 */
static __always_inline u32 by_range(struct flow_key *k)
{
	struct range_key r = {
		.bits = 32 + (k->family == 4 ? 32 : 128),
		.proto = k->proto,
		.family = k->family,
		.port = k->peer_port,
		.addr = {k->peer[0], k->peer[1], k->peer[2], k->peer[3]},
	};
	u32 zero = 0, *id;
	void *now = bpf_map_lookup_elem(&ranges, &zero);

	if (!now)
		return 0;
	id = bpf_map_lookup_elem(now, &r);
	return id ? *id : 0;
}

/* Whether the host's nftables drop packets to this address, whatever the policy. */
static __always_inline bool withheld(struct flow_key *k)
{
	struct range_key r = {
		.bits = 32 + (k->family == 4 ? 32 : 128),
		.family = k->family,
		.addr = {k->peer[0], k->peer[1], k->peer[2], k->peer[3]},
	};
	u32 *is;

	if (synthetic(k))
		return false;
	is = bpf_map_lookup_elem(&kept, &r);
	return is && *is;
}

static __always_inline u32 permitted(struct flow_key *k, u64 now, u32 *id)
{
	struct target t = {
		.addr = {k->peer[0], k->peer[1], k->peer[2], k->peer[3]},
		.port = k->peer_port,
		.proto = k->proto,
		.family = k->family,
	};
	struct permit *p;

	if (to_resolver(k)) {
		*id = PERMIT_RESOLVER;
		return ALLOWED;
	}
	p = bpf_map_lookup_elem(&permits, &t);
	if (p && (!p->expires || now < p->expires))
		*id = p->id;
	else
		*id = by_range(k);
	if (*id)
		return withheld(k) ? WITHHELD : ALLOWED;
	return p ? EXPIRED : NOT_PERMITTED;
}

/* Checks again a flow that was allowed under another generation. */
static __always_inline u32 judge(struct flow *f, struct flow_key *k, u32 current)
{
	u32 id = f->permit;

	if (f->state & STATE_REVOKED)
		return REVOKED;
	if (f->generation == current)
		return ALLOWED;
	if (id & PERMIT_RANGE)
		id = by_range(k);
	else if (id != PERMIT_RESOLVER && !bpf_map_lookup_elem(&ids, &id))
		id = 0;
	if (id && id != PERMIT_RESOLVER && withheld(k))
		id = 0;
	if (!id) {
		__sync_fetch_and_or(&f->state, STATE_REVOKED);
		return REVOKED;
	}
	f->permit = id;
	f->generation = current;
	return ALLOWED;
}

static __always_inline bool after(u32 a, u32 b)
{
	return (s32)(a - b) > 0;
}

static __always_inline void follow_tcp(struct flow *f, struct packet *p, const bool out)
{
	u32 next = p->seq + p->payload + !!(p->flags & TCP_SYN) + !!(p->flags & TCP_FIN);
	u64 state = 0;

	if (p->flags & TCP_RST) {
		/* A reset of the peer counts only if the guest will accept it. */
		if (out || !(f->state & STATE_ANSWERED) || p->seq == f->guest_ack || p->seq == f->peer_next)
			state = STATE_RST;
	} else if (out) {
		if (!f->packets_out || after(next, f->guest_next))
			f->guest_next = next;
		if ((p->flags & TCP_ACK) && (!f->guest_ack || after(p->ack, f->guest_ack)))
			f->guest_ack = p->ack;
	} else {
		if (!f->packets_in || after(next, f->peer_next))
			f->peer_next = next;
		if ((p->flags & TCP_ACK) && (!f->peer_ack || after(p->ack, f->peer_ack)))
			f->peer_ack = p->ack;
	}
	if (p->flags & TCP_FIN)
		state |= out ? STATE_FIN_OUT : STATE_FIN_IN;
	if (!out)
		state |= STATE_ANSWERED;
	if (state & ~f->state)
		__sync_fetch_and_or(&f->state, state);
}

/* A frame that is segmented later counts as its segments. */
static __always_inline void account(struct __sk_buff *skb, struct flow *f, struct packet *p, const bool out, u64 now)
{
	u64 bytes = skb->len, packets = 1;
	u32 gso = skb->gso_size;

	if (gso && p->payload > gso) {
		packets = (p->payload + gso - 1) / gso;
		bytes += (packets - 1) * p->headers;
	}
	if (p->key.proto == PROTO_TCP)
		follow_tcp(f, p, out);
	else if (!out && !(f->state & STATE_ANSWERED))
		__sync_fetch_and_or(&f->state, STATE_ANSWERED);
	if (out) {
		__sync_fetch_and_add(&f->packets_out, packets);
		__sync_fetch_and_add(&f->bytes_out, bytes);
	} else {
		__sync_fetch_and_add(&f->packets_in, packets);
		__sync_fetch_and_add(&f->bytes_in, bytes);
	}
	f->last = now;
}

/* Path MTU: an ICMP error that quotes a live flow's packet (RFC 1191, RFC 8201). */
static __always_inline bool path_mtu(struct __sk_buff *skb, struct packet *p, u32 current)
{
	struct flow_key k = {.family = p->key.family};
	u32 at = p->headers;
	struct icmp outer;
	__be16 ports[2];
	struct flow *f;

	if (bpf_skb_load_bytes(skb, at, &outer, sizeof(outer)))
		return false;
	at += sizeof(outer);
	if (k.family == 4) {
		struct ipv4 inner;

		if (outer.type != 3 || outer.code != 4 || bpf_skb_load_bytes(skb, at, &inner, sizeof(inner)))
			return false;
		if (inner.version_ihl != 0x45 || inner.from != guest4 || (inner.fragment & bpf_htons(IPV4_OFFSET)))
			return false;
		k.peer[0] = inner.to;
		k.proto = inner.protocol;
		at += sizeof(inner);
	} else {
		struct ipv6 inner;

		if (outer.type != 2 || outer.code != 0 || bpf_skb_load_bytes(skb, at, &inner, sizeof(inner)))
			return false;
		if (inner.version_class >> 4 != 6 || !same_ipv6(inner.from, guest6))
			return false;
		__builtin_memcpy(k.peer, inner.to, sizeof(k.peer));
		k.proto = inner.next;
		at += sizeof(inner);
		if (k.proto == PROTO_FRAGMENT) {
			struct fragment part;

			if (bpf_skb_load_bytes(skb, at, &part, sizeof(part)) || (part.place & bpf_htons(IPV6_OFFSET)))
				return false;
			k.proto = part.next;
			at += sizeof(part);
		}
	}
	if (bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
		return false;
	k.guest_port = ports[0];
	k.peer_port = ports[1];
	f = bpf_map_lookup_elem(&flows, &k);
	return f && !judge(f, &k, current);
}
