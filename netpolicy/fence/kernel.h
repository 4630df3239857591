/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The kernel structures and constants that the fence's programs use.
 * sk_buff's offsets are fixed up against the running kernel's BTF (CO-RE); the
 * others are part of the user ABI or of network protocols.
 */
#pragma once

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
};

/* verdicts of a TCX program: PASS and DROP end the chain */
enum {
	TCX_PASS = 0,
	TCX_DROP = 2,
};

struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 priority;
	u32 ingress_ifindex;
	u32 ifindex;
	u32 tc_index;
	u32 cb[5];
	u32 hash;
	u32 tc_classid;
	u32 data;
	u32 data_end;
	u32 napi_id;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
	u32 data_meta;
	u64 flow_keys;
	u64 tstamp;
	u32 wire_len;
	u32 gso_segs;
	u64 sk;
	u32 gso_size;
};

#define CHECKSUM_PARTIAL 3

struct sk_buff {
	u8 ip_summed : 2;
	u8 encapsulation : 1;
	u16 csum_start;
	u16 csum_offset;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

/* IEEE 802.3 */
struct ethernet {
	u16 to[3];
	u16 from[3];
	__be16 type;
};

#define ETH_IPV4 0x0800
#define ETH_ARP 0x0806
#define ETH_IPV6 0x86dd

/* RFC 826, for IPv4 over Ethernet */
struct arp {
	__be16 hardware;
	__be16 protocol;
	u8 hardware_size;
	u8 protocol_size;
	__be16 operation;
	u16 from_mac[3];
	u16 from_ip[2];
	u16 to_mac[3];
	u16 to_ip[2];
};

/* RFC 791, section 3.1 */
struct ipv4 {
	u8 version_ihl;
	u8 tos;
	__be16 total;
	__be16 id;
	__be16 fragment;
	u8 ttl;
	u8 protocol;
	__sum16 check;
	__be32 from;
	__be32 to;
};

#define IPV4_RESERVED 0x8000
#define IPV4_MF 0x2000
#define IPV4_OFFSET 0x1fff /* in units of 8 bytes */

/* RFC 8200, section 3 */
struct ipv6 {
	u8 version_class;
	u8 flow[3];
	__be16 payload;
	u8 next;
	u8 hops;
	__be32 from[4];
	__be32 to[4];
};

/* RFC 8200, section 4.5 */
struct fragment {
	u8 next;
	u8 reserved;
	__be16 place;
	__be32 id;
};

#define IPV6_RESERVED 0x0006
#define IPV6_MF 0x0001
#define IPV6_OFFSET 0xfff8 /* in bytes */

/* RFC 9293, section 3.1 */
struct tcp {
	__be16 from;
	__be16 to;
	__be32 seq;
	__be32 ack;
	u8 offset;
	u8 flags;
	__be16 window;
	__sum16 check;
	__be16 urgent;
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_URG 0x20

/* RFC 768 */
struct udp {
	__be16 from;
	__be16 to;
	__be16 length;
	__sum16 check;
};

/* RFC 792, RFC 4443 */
struct icmp {
	u8 type;
	u8 code;
	__sum16 check;
	u32 rest;
};

#define PROTO_ICMP 1
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_FRAGMENT 44
#define PROTO_ICMPV6 58
