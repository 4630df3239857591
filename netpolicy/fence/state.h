/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Shared by the programs and Custody: the maps, records and constants of one fence. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>

#define FLOWS 65536
#define PERMITS 262144
#define IDS 524288
#define KEPT 65536
#define DATAGRAMS 1024

/* Why a packet was dropped. reason.go has the texts, in this order. */
enum reason {
	ALLOWED,
	NOT_IP,
	LINK,
	BAD_ARP,
	MALFORMED,
	OPTIONS,
	FRAGMENT,
	EXTENSION,
	SOURCE,
	PROTOCOL,
	ICMP,
	TCP_FLAGS,
	MAPPED,
	CHECKSUM,
	NO_FLOW,
	NOT_PERMITTED,
	EXPIRED,
	TABLE_FULL,
	REVOKED,
	UNASKED,
	WITHHELD,
	REASONS,
};

/* not a reason: the frame is a valid ARP packet */
#define IS_ARP 255

#define PERMIT_RESOLVER 1
/* a permit of a rule for a range, which is valid only in its own generation */
#define PERMIT_RANGE 0x80000000

/* a flow as the guest sees it; IPv4 addresses are in the first 4 bytes */
struct flow_key {
	u32 peer[4];
	__be16 peer_port;
	__be16 guest_port;
	u8 proto;
	u8 family;
	u16 zero;
};

enum {
	STATE_FIN_OUT = 1,
	STATE_FIN_IN = 2,
	STATE_RST = 4,
	STATE_REVOKED = 8,
	STATE_ANSWERED = 16,
};

/* times in ns of CLOCK_MONOTONIC; sequence numbers in host order */
struct flow {
	u32 permit;
	u32 generation;
	u64 began;
	u64 last;
	u64 bytes_out;
	u64 bytes_in;
	u64 packets_out;
	u64 packets_in;
	u32 guest_next; /* the next byte that the guest will send */
	u32 guest_ack;	/* the next byte that the guest expects */
	u32 peer_next;
	u32 peer_ack;
	u64 state;
};

/* the destination of a packet */
struct target {
	u32 addr[4];
	__be16 port;
	u8 proto;
	u8 family;
};

struct range_key {
	u32 bits; /* prefix length: 32 for the fields before addr, plus that of the range */
	u8 proto;
	u8 family;
	__be16 port;
	u32 addr[4];
};

struct permit {
	u32 id;
	u32 zero;
	u64 expires; /* 0: never */
};

enum event_kind {
	EVENT_OPEN = 1,
	EVENT_CLOSE,
	EVENT_DENY,
};

#define QUOTE 64

/* a fragmented UDP datagram */
struct datagram_key {
	u32 peer[4];
	u32 id;
	u8 family;
	bool out;
	u16 zero;
};

struct datagram {
	__be16 guest_port;
	__be16 peer_port;
	u32 size; /* bytes, UDP's header included */
	u32 next; /* offset of the next fragment */
};

struct event {
	u32 kind;
	u32 reason;
	struct flow_key key;
	struct flow flow;
	u64 time;
	u64 total; /* denials for this reason so far, this one included */
	u32 size;  /* bytes of quote that are set */
	u32 inbound;
	u8 quote[QUOTE]; /* the denied packet, from its network header on */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* opened pairs of address and port */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PERMITS);
	__type(key, struct target);
	__type(value, struct permit);
} permits SEC(".maps");

/* ids of the permits that flows may still use */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, IDS);
	__type(key, u32);
	__type(value, u32);
} ids SEC(".maps");

/* The current generation's ranges: an id, or 0 for none. The whole map is replaced. */
struct ranges_of_generation {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct range_key));
	__uint(value_size, sizeof(u32));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ranges_of_generation);
} ranges SEC(".maps");

/*
 * Addresses that direct flows must not reach: the host's own and those that are not unicast, as 1;
 * host addresses that the policy names, as 0. Transport and port of a key are 0.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, KEPT);
	__type(key, struct range_key);
	__type(value, u32);
} kept SEC(".maps");

/* datagrams of which the first fragment has passed, but not the last */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DATAGRAMS);
	__type(key, struct datagram_key);
	__type(value, struct datagram);
} datagrams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* set once, before the programs are loaded */
const volatile u32 pass_mark;	/* on checked packets */
const volatile u32 inject_mark; /* on packets that Custody sends */
const volatile u32 part_mark;	/* on checked fragments, combined with the generation by exclusive or */
const volatile u16 guest_mac[3];
const volatile u16 gateway_mac[3];
const volatile __be32 guest4;
const volatile __be32 gateway4;
const volatile __be32 synthetic4;
const volatile __be32 synthetic4_mask;
const volatile __be32 guest6[4];
const volatile __be16 resolver_port;

/* unused: they export the layouts to Go */
const struct event *layout_event __attribute__((unused));
const struct range_key *layout_range_key __attribute__((unused));

u32 generation;		/* of the policy; flows of another generation are checked again */
u64 denials[REASONS];	/* exact */
u64 lost;		/* records that the ring buffer had no space for */

/* limits of the denied packets with an event: RATE a second, BURST at a time, for each direction */
#define RATE 200
#define BURST 400
struct bucket {
	u64 filled;
	u64 tokens; /* in thousandths */
} buckets[2];
