//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The policy's programs, to which the gates (gate.bpf.c) pass packets: from_guest
 * and to_guest at the guest's TAP, from_uplink for the incoming packets of direct flows.
 */
#include "datagram.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tc")
int from_guest(struct __sk_buff *skb)
{
	u32 current = *(volatile u32 *)&generation, id, why;
	u64 now = bpf_ktime_get_coarse_ns();
	struct packet p = {};
	struct flow *f;

	skb->mark = 0;
	why = read_frame(skb, &p, true);
	if (why == IS_ARP)
		goto pass;
	if (!why && p.part.end)
		why = place(&p, true);
	if (why)
		return deny(skb, &p, why, true, now);
	f = bpf_map_lookup_elem(&flows, &p.key);
	if (f)
		why = judge(f, &p.key, current);
	if (f && p.key.proto == PROTO_TCP && pure_syn(p.flags) && over(f)) {
		/* The guest reuses the port: this is another flow. */
		struct flow ended = *f;

		if (!bpf_map_delete_elem(&flows, &p.key))
			report(EVENT_CLOSE, &p, &ended);
		f = 0;
	}
	if (f) {
		if (why)
			return deny(skb, &p, why, true, now);
	} else {
		struct flow fresh = {.generation = current, .last = now};

		if (p.key.proto == PROTO_TCP && !pure_syn(p.flags))
			return deny(skb, &p, NO_FLOW, true, now);
		why = permitted(&p.key, now, &id);
		if (why)
			return deny(skb, &p, why, true, now);
		fresh.permit = id;
		fresh.began = bpf_ktime_get_ns();
		if (!bpf_map_update_elem(&flows, &p.key, &fresh, BPF_NOEXIST))
			report(EVENT_OPEN, &p, &fresh);
		f = bpf_map_lookup_elem(&flows, &p.key);
		if (!f)
			return deny(skb, &p, TABLE_FULL, true, now);
	}
	if (p.part.end && !take_place(&p, true))
		return deny(skb, &p, FRAGMENT, true, now);
	account(skb, f, &p, true, now);
	if (p.part.end) {
		skb->mark = part_mark ^ current;
		return TCX_PASS;
	}
pass:
	skb->mark = pass_mark;
	return TCX_PASS;
}

SEC("tc")
int to_guest(struct __sk_buff *skb)
{
	u32 current = *(volatile u32 *)&generation, why;
	u64 now = bpf_ktime_get_coarse_ns();
	struct packet p = {};
	struct flow *f;

	if (skb->mark == inject_mark)
		return TCX_PASS;
	why = read_frame(skb, &p, false);
	if (why == IS_ARP)
		return TCX_PASS;
	if (why == ICMP && path_mtu(skb, &p, current))
		return TCX_PASS;
	if (!why && p.part.end)
		why = place(&p, false);
	if (why)
		return deny(skb, &p, why, false, now);
	f = bpf_map_lookup_elem(&flows, &p.key);
	if (!f)
		return deny(skb, &p, UNASKED, false, now);
	why = judge(f, &p.key, current);
	if (why) {
		/* The gateway's resets of flows that it ends may still reach the guest. */
		if (p.key.proto == PROTO_TCP && (p.flags & TCP_RST) && synthetic(&p.key))
			return TCX_PASS;
		return deny(skb, &p, why, false, now);
	}
	if (p.part.end && !take_place(&p, false))
		return deny(skb, &p, FRAGMENT, false, now);
	account(skb, f, &p, false, now);
	return TCX_PASS;
}

/* Marks incoming packets, so that nftables accepts them as checked. */
SEC("tc")
int from_uplink(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_IPV4) && skb->protocol != bpf_htons(ETH_IPV6))
		return TCX_DROP;
	skb->mark = pass_mark;
	return TCX_PASS;
}
