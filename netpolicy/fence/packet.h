/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Parses a frame between guest and gateway, and denies all that is not a plain
 * TCP or UDP packet between one of the guest's addresses and another.
 */
#pragma once

#include "state.h"

/* Ethernet, IPv6, TCP without options, which is more than a fragment header and UDP */
#define HEADERS (14 + 40 + 20)

struct packet {
	struct flow_key key;
	u32 headers; /* bytes, Ethernet's included */
	u32 payload; /* bytes after them */
	u32 seq;
	u32 ack;
	u32 flags; /* TCP's */
	struct part {
		u32 id;
		u32 begin, end; /* offsets in the datagram, from the UDP header; end is 0 for unfragmented packets */
		u32 size;	/* of the datagram, as in its first fragment */
		bool more;
	} part;
};

static __always_inline bool same_mac(const u16 *a, const volatile u16 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

static __always_inline bool broadcast(const u16 *mac)
{
	return (mac[0] & mac[1] & mac[2]) == 0xffff;
}

static __always_inline bool same_ipv6(const __be32 *a, const volatile __be32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline __be32 join(const u16 *half)
{
	return (u32)half[0] | (u32)half[1] << 16;
}

static __always_inline u32 read_arp(void *at, void *end, const bool out)
{
	struct arp *a = at;

	if ((void *)(a + 1) > end)
		return BAD_ARP;
	if (a->hardware != bpf_htons(1) || a->protocol != bpf_htons(ETH_IPV4) || a->hardware_size != 6 || a->protocol_size != 4)
		return BAD_ARP;
	if (a->operation != bpf_htons(1) && a->operation != bpf_htons(2))
		return BAD_ARP;
	if (!same_mac(a->from_mac, out ? guest_mac : gateway_mac))
		return BAD_ARP;
	if (join(a->from_ip) != (out ? guest4 : gateway4) || join(a->to_ip) != (out ? gateway4 : guest4))
		return BAD_ARP;
	return IS_ARP;
}

/*
 * A guest that requests checksum offload names the checksum's offset. If that were not
 * the checksum of the transport header, the kernel would change an address after both
 * packet filters had checked it.
 *
 * __sk_buff does not have these fields. The context of a program of this type is the
 * address of the kernel's sk_buff, so they can be read there with a helper that
 * every kernel since 5.5 has; bpf_cast_to_kern_ctx would need 6.2.
 */
static __always_inline bool checksum_is_transports(struct __sk_buff *skb, const u32 transport, const u32 offset, const bool part)
{
	struct sk_buff *k = (void *)skb;

	if (BPF_CORE_READ_BITFIELD_PROBED(k, encapsulation))
		return false;
	if (BPF_CORE_READ_BITFIELD_PROBED(k, ip_summed) != CHECKSUM_PARTIAL)
		return true;
	if (part) /* it would cover only the fragment */
		return false;
	return BPF_CORE_READ(k, csum_start) - (u32)(BPF_CORE_READ(k, data) - BPF_CORE_READ(k, head)) == transport &&
	       BPF_CORE_READ(k, csum_offset) == offset;
}

static __always_inline bool sane(u32 flags)
{
	if (!(flags & (TCP_SYN | TCP_RST | TCP_ACK)))
		return false;
	if ((flags & TCP_SYN) && (flags & (TCP_FIN | TCP_RST)))
		return false;
	return !((flags & TCP_FIN) && (flags & TCP_RST));
}

static __always_inline u32 read_tcp(struct packet *p, void *at, void *end, u32 size, const bool out)
{
	struct tcp *t = at;
	u32 header;

	if (size < sizeof(*t) || (void *)(t + 1) > end)
		return MALFORMED;
	header = (t->offset >> 4) * 4;
	if (header < sizeof(*t) || header > size)
		return MALFORMED;
	p->flags = t->flags;
	if (!sane(p->flags))
		return TCP_FLAGS;
	p->key.guest_port = out ? t->from : t->to;
	p->key.peer_port = out ? t->to : t->from;
	p->seq = bpf_ntohl(t->seq);
	p->ack = bpf_ntohl(t->ack);
	p->headers += header;
	p->payload = size - header;
	return ALLOWED;
}

static __always_inline u32 read_udp(struct packet *p, void *at, void *end, u32 size, const bool out)
{
	struct udp *u = at;

	if (size < sizeof(*u) || (void *)(u + 1) > end || bpf_ntohs(u->length) != size)
		return MALFORMED;
	p->key.guest_port = out ? u->from : u->to;
	p->key.peer_port = out ? u->to : u->from;
	p->headers += sizeof(*u);
	p->payload = size - sizeof(*u);
	return ALLOWED;
}

/* size: bytes of the transport's header and payload */
static __always_inline u32 read_transport(struct __sk_buff *skb, struct packet *p, void *at, void *end, u32 size, const bool out)
{
	const bool tcp = p->key.proto == PROTO_TCP;
	const u32 transport = p->headers;
	u32 why = tcp ? read_tcp(p, at, end, size, out) : read_udp(p, at, end, size, out);

	if (why)
		return why;
	if (out && !checksum_is_transports(skb, transport, tcp ? 16 : 6, false))
		return CHECKSUM;
	return ALLOWED;
}

/*
 * Parses a fragment of a UDP datagram. Only the first fragment has the ports.
 * size: bytes of the datagram in this fragment.
 */
static __always_inline u32 read_part(struct __sk_buff *skb, struct packet *p, void *at, void *end, u32 size, const bool out)
{
	struct part *part = &p->part;
	struct udp *u = at;

	if (p->key.proto != PROTO_UDP || !size || (!part->begin && !part->more) || (part->more && size % 8) || skb->gso_size)
		return FRAGMENT;
	if (out && !checksum_is_transports(skb, 0, 0, true))
		return CHECKSUM;
	part->end = part->begin + size;
	p->payload = size;
	if (part->begin)
		return ALLOWED;
	if (size < sizeof(*u) || (void *)(u + 1) > end)
		return MALFORMED;
	part->size = bpf_ntohs(u->length);
	p->key.guest_port = out ? u->from : u->to;
	p->key.peer_port = out ? u->to : u->from;
	p->headers += sizeof(*u);
	p->payload -= sizeof(*u);
	return ALLOWED;
}

/* A frame may be longer than its packet only because of Ethernet's minimum. */
static __always_inline bool fits(struct __sk_buff *skb, u32 size)
{
	return skb->len == size || (skb->len > size && skb->len <= 60);
}

static __always_inline u32 read_ipv4(struct __sk_buff *skb, struct packet *p, void *at, void *end, const bool out)
{
	struct ipv4 *ip = at;
	u32 total, place;

	if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5)
		return MALFORMED;
	if (ip->version_ihl != 0x45)
		return OPTIONS;
	total = bpf_ntohs(ip->total);
	if (total < sizeof(*ip) || !fits(skb, sizeof(struct ethernet) + total))
		return MALFORMED;
	place = bpf_ntohs(ip->fragment);
	if (place & IPV4_RESERVED)
		return FRAGMENT;
	if ((out ? ip->from : ip->to) != guest4)
		return SOURCE;
	p->key.family = 4;
	p->key.peer[0] = out ? ip->to : ip->from;
	p->key.proto = ip->protocol;
	p->headers = sizeof(struct ethernet) + sizeof(*ip);
	if (place & (IPV4_MF | IPV4_OFFSET)) {
		p->part.id = ip->id;
		p->part.begin = (place & IPV4_OFFSET) * 8;
		p->part.more = place & IPV4_MF;
		return read_part(skb, p, ip + 1, end, total - sizeof(*ip), out);
	}
	if (ip->protocol == PROTO_ICMP)
		return ICMP;
	if (ip->protocol != PROTO_TCP && ip->protocol != PROTO_UDP)
		return PROTOCOL;
	return read_transport(skb, p, ip + 1, end, total - sizeof(*ip), out);
}

/* RFC 7045, section 4, and its registry */
static __always_inline bool extension(u8 next)
{
	return next == 0 || next == 43 || next == 50 || next == 51 || next == 60 || next == 135 || next == 139 ||
	       next == 140 || next == 253 || next == 254;
}

static __always_inline u32 read_fragment(struct __sk_buff *skb, struct packet *p, void *at, void *end, u32 size, const bool out)
{
	struct fragment *f = at;
	u32 place;

	if (size < sizeof(*f) || (void *)(f + 1) > end)
		return MALFORMED;
	place = bpf_ntohs(f->place);
	if (f->reserved || (place & IPV6_RESERVED))
		return FRAGMENT;
	p->key.proto = f->next;
	p->headers += sizeof(*f);
	p->part.id = f->id;
	p->part.begin = place & IPV6_OFFSET;
	p->part.more = place & IPV6_MF;
	return read_part(skb, p, f + 1, end, size - sizeof(*f), out);
}

static __always_inline u32 read_ipv6(struct __sk_buff *skb, struct packet *p, void *at, void *end, const bool out)
{
	struct ipv6 *ip = at;
	__be32 *peer;
	u32 size;

	if ((void *)(ip + 1) > end || ip->version_class >> 4 != 6)
		return MALFORMED;
	size = bpf_ntohs(ip->payload);
	if (!fits(skb, sizeof(struct ethernet) + sizeof(*ip) + size))
		return MALFORMED;
	if (!same_ipv6(out ? ip->from : ip->to, guest6))
		return SOURCE;
	peer = out ? ip->to : ip->from;
	p->key.family = 6;
	p->key.peer[0] = peer[0];
	p->key.peer[1] = peer[1];
	p->key.peer[2] = peer[2];
	p->key.peer[3] = peer[3];
	p->key.proto = ip->next;
	p->headers = sizeof(struct ethernet) + sizeof(*ip);
	if (extension(ip->next))
		return EXTENSION;
	if (ip->next == PROTO_ICMPV6)
		return ICMP;
	if (ip->next != PROTO_TCP && ip->next != PROTO_UDP && ip->next != PROTO_FRAGMENT)
		return PROTOCOL;
	if (!peer[0] && !peer[1] && peer[2] == bpf_htonl(0xffff))
		return MAPPED;
	if (ip->next == PROTO_FRAGMENT)
		return read_fragment(skb, p, ip + 1, end, size, out);
	return read_transport(skb, p, ip + 1, end, size, out);
}

static __always_inline u32 read_frame(struct __sk_buff *skb, struct packet *p, const bool out)
{
	u32 want = skb->len < HEADERS ? skb->len : HEADERS;
	struct ethernet *eth;
	void *end;
	bool arp;

	if (skb->vlan_present)
		return NOT_IP;
	if ((u64)skb->data_end - skb->data < want && bpf_skb_pull_data(skb, want))
		return MALFORMED;
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if ((void *)(eth + 1) > end)
		return MALFORMED;
	arp = eth->type == bpf_htons(ETH_ARP);
	if (!same_mac(eth->from, out ? guest_mac : gateway_mac))
		return LINK;
	if (!same_mac(eth->to, out ? gateway_mac : guest_mac) && !(arp && broadcast(eth->to)))
		return LINK;
	if (arp)
		return read_arp(eth + 1, end, out);
	if (eth->type == bpf_htons(ETH_IPV4))
		return read_ipv4(skb, p, eth + 1, end, out);
	if (eth->type == bpf_htons(ETH_IPV6))
		return read_ipv6(skb, p, eth + 1, end, out);
	return NOT_IP;
}
