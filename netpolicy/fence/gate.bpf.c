//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The gates are the programs on the devices. Each passes a packet to its program
 * of the policy, and drops it if there is none. The kernel empties the table of
 * programs when its last descriptor is closed (a prog array has no entries without
 * a user), so each gate drops all packets after Custody's process has ended.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

/* gates.go has the same order */
enum {
	FROM_GUEST,
	TO_GUEST,
	FROM_UPLINK,
	GATES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, GATES);
	__type(key, u32);
	__type(value, u32);
} admitted SEC(".maps");

SEC("tc")
int from_guest_gate(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &admitted, FROM_GUEST);
	return TCX_DROP;
}

SEC("tc")
int to_guest_gate(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &admitted, TO_GUEST);
	return TCX_DROP;
}

SEC("tc")
int from_uplink_gate(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &admitted, FROM_UPLINK);
	return TCX_DROP;
}
