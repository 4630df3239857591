/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Attempts to reach an address over IPv4 or IPv6. */
#pragma once

#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define MSG_FASTOPEN 0x20000000
#define ENOTSOCK 88
#define FLOW_HIGH ((512 << 10) / 8)
#define INET_SIZE 16
#define INET6_SIZE 24

/*
 * The local end, which the socket has by now, whether or not the peer answered:
 * a connection is bound before its first packet. inet_sport outlives a
 * connection that was refused; the address does not.
 */
static __always_inline void local(struct flow_record *r, struct sock *sk)
{
	struct in6_addr v6 = BPF_CORE_READ(sk, __sk_common.skc_v6_rcv_saddr);
	__be32 v4 = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);

	__builtin_memcpy(r->local4, &v4, sizeof(v4));
	__builtin_memcpy(r->local6, &v6, sizeof(v6));
	r->local_port = __builtin_bswap16(BPF_CORE_READ((struct inet_sock *)sk, inet_sport));
}

static __always_inline void attempt(struct socket *sock, void *address, int size, int ret)
{
	struct proc *p = self();
	struct flow_record r = {};
	struct inet_address a = {};
	struct sock *sk;

	if (!p || size < INET_SIZE)
		return;
	if (bpf_probe_read_kernel(&a, size < INET6_SIZE ? INET_SIZE : sizeof(a), address))
		return;
	if (a.family == AF_INET)
		__builtin_memcpy(r.addr, a.v4, 4);
	else if (a.family == AF_INET6 && size >= INET6_SIZE)
		__builtin_memcpy(r.addr, a.v6, 16);
	else
		return;
	fill(&r.head, KIND_FLOW, p);
	r.family = a.family;
	r.port = __builtin_bswap16(a.port);
	sk = BPF_CORE_READ(sock, sk);
	r.proto = BPF_CORE_READ(sk, sk_protocol);
	local(&r, sk);
	r.err = ret < 0 ? -ret : 0;
	send(&flow_ring, FLOW_HIGH, LOSS_FLOW, &r, sizeof(r));
}

SEC("fexit/__sys_connect_file")
int BPF_PROG(connected, struct file *file, struct sockaddr_storage *address, int size, int flags, int ret)
{
	if (ret == -ENOTSOCK)
		return 0;
	attempt(file->private_data, address, size, ret);
	return 0;
}

static __always_inline int sent(struct socket *sock, struct msghdr *msg, int ret)
{
	void *name = msg->msg_name;

	if (!name)
		return 0;
	if (sock->sk->sk_protocol == IPPROTO_TCP && !(msg->msg_flags & MSG_FASTOPEN))
		return 0;
	attempt(sock, name, msg->msg_namelen, ret);
	return 0;
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(sent_inet, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return sent(sock, msg, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(sent_inet6, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return sent(sock, msg, ret);
}
