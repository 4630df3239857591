//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The programs on the control group of a worker. They see the sockets that the
 * worker makes, in whatever network namespace, and not those that it is given.
 * sent judges every packet. connect4 and connect6 only make connect(2) fail at
 * once in place of at its timeout.
 */
#include "../fence/kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

enum {
	STREAM = 1, /* SOCK_STREAM */
	LOOPBACK = 1, /* the index of the device lo in every namespace */
	TCP = 6,
	UDP = 17,
	RST = 4,
	FIXED_BITS = 32, /* of a key, before its address */
};

/* reach.go has the same values */
enum {
	DENIED = 0,
	REMOTE = 1, /* unless it is an address of this host */
	NAMED = 2,
};

struct key {
	u32 bits;
	u8 proto;
	u8 family; /* 4 or 6 */
	__be16 port;
	u8 addr[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1 << 17);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, u32);
} destinations SEC(".maps");

struct bpf_sock_addr {
	u32 user_family;
	u32 user_ip4;
	u32 user_ip6[4];
	u32 user_port;
	u32 family;
	u32 type;
	u32 protocol;
};

static __always_inline u32 find(const struct key *k)
{
	u32 *value = bpf_map_lookup_elem(&destinations, k);

	return value ? *value : DENIED;
}

/* ends is true for a TCP segment that only resets a connection. */
static __always_inline bool ends(struct __sk_buff *skb, u32 at)
{
	u8 tcp[14];

	if (bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp)))
		return false;
	return tcp[13] & RST && skb->len == at + (tcp[12] >> 4) * 4;
}

SEC("cgroup_skb/egress")
int sent(struct __sk_buff *skb)
{
	struct key k = {};
	u8 head[8];
	u32 at, verdict;

	if (bpf_skb_load_bytes(skb, 0, head, sizeof(head)))
		return 0;
	switch (skb->protocol) {
	case bpf_htons(ETH_IPV4):
		at = 20;
		k.family = 4;
		k.bits = FIXED_BITS + 32;
		if (head[0] != 0x45 || head[6] & 0x3f || head[7]) /* options, fragments */
			return 0;
		if (bpf_skb_load_bytes(skb, 9, &k.proto, 1) || bpf_skb_load_bytes(skb, 16, k.addr, 4))
			return 0;
		break;
	case bpf_htons(ETH_IPV6):
		at = 40;
		k.family = 6;
		k.bits = FIXED_BITS + 128;
		k.proto = head[6]; /* no extension headers */
		if (bpf_skb_load_bytes(skb, 24, k.addr, 16))
			return 0;
		break;
	default:
		return 0;
	}
	if (k.proto != TCP && k.proto != UDP)
		return 0;
	if (bpf_skb_load_bytes(skb, at + 2, &k.port, 2))
		return 0;
	verdict = find(&k);
	if (verdict == NAMED || (verdict == REMOTE && skb->ifindex != LOOPBACK))
		return 1;
	return k.proto == TCP && ends(skb, at); /* to the peer of a flow that a new policy ends */
}

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *a)
{
	struct key k = { .bits = FIXED_BITS + 32, .proto = TCP, .family = 4, .port = a->user_port };

	if (a->type != STREAM)
		return 1;
	*(u32 *)k.addr = a->user_ip4;
	return find(&k) != DENIED;
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *a)
{
	struct key k = { .bits = FIXED_BITS + 128, .proto = TCP, .family = 6, .port = a->user_port };
	u32 *to = (u32 *)k.addr;

	if (a->type != STREAM)
		return 1;
	to[0] = a->user_ip6[0];
	to[1] = a->user_ip6[1];
	to[2] = a->user_ip6[2];
	to[3] = a->user_ip6[3];
	if (to[0] == 0 && to[1] == 0 && to[2] == bpf_htonl(0xffff)) { /* IPv4 in IPv6 */
		k.bits = FIXED_BITS + 32;
		k.family = 4;
		to[0] = to[3];
	}
	return find(&k) != DENIED;
}
