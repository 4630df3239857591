/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Maps, filter, path walk and output that all programs share. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "record.h"

#define BUF_SIZE 16384
#define NAME_SIZE 256
#define PATH_BYTES 4096
#define PATH_DEPTH 512
#define CGROUP_DEPTH 8

/* a process (thread group) that we watch */
struct proc {
	u64 start;
	u64 origin_start;
	u64 execed;
	u32 origin_pid;
	u32 step;
	u32 pid;
	u32 threads;
};

/* one path operation between its check (which knows the mount) and its result */
struct intent {
	u64 dentry;
	u64 dir;
	u64 mnt;
	u64 source; /* what a link names */
	u64 ino;
	u64 to_ino; /* of what a rename replaces or swaps with */
	u32 dev;
	u32 replaces;
	u32 exchanges;
	u8 name[NAME_SIZE];
};

struct buffer {
	u8 data[BUF_SIZE];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u32);
	__type(value, struct proc);
} procs SEC(".maps");

/* tracked cgroup -> step number */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u32);
} cgroups SEC(".maps");

/* who opened a file for writing: it may be released by a kernel thread */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct proc);
} writers SEC(".maps");

/* inode -> the generation of its content, see record.h; one that was forgotten is no longer known to any record */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, u64);
} generations SEC(".maps");

volatile u64 last_generation;

/* set when a mapping could not be remembered: from then on no generation proves anything */
volatile u32 unproven;

/* overlay's backing files that a mapping keeps open, and who closed the overlay's */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct proc);
} mapped SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct intent);
} intents SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct buffer);
} buffers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSS_MAX);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* devices of the file systems that hold the steps' secrets */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u8);
} secret_devices SEC(".maps");

/* a process and a file of a secret that it has opened */
struct secret_reader {
	u64 inode;
	u64 start;
	u32 pid;
	u32 reserved;
};

/* those whose opening was reported */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct secret_reader);
	__type(value, u8);
} secret_readers SEC(".maps");

/* one ring each, so that a flood of one kind starves no other */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} proc_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} file_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 << 10);
} flow_ring SEC(".maps");

/* set by the reader: the next record must wake it */
volatile u32 armed;
/* closes of files read that are larger than this are reported; negative: none */
volatile s64 read_over = -1;

static __always_inline void lose(u32 what)
{
	u64 *n = bpf_map_lookup_elem(&losses, &what);

	if (n)
		*n += 1;
}

/*
 * The reader is woken by the first record after it armed, and when a ring is
 * an eighth full. In between it looks by itself every few milliseconds.
 */
static __always_inline u64 wakeup(void *ring, u64 high)
{
	if (armed) {
		armed = 0;
		return BPF_RB_FORCE_WAKEUP;
	}
	if (bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > high)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline long send(void *ring, u64 high, u32 what, void *data, u64 size)
{
	long err = bpf_ringbuf_output(ring, data, size, wakeup(ring, high));

	if (err)
		lose(what);
	return err;
}

static __always_inline u8 *buffer(void)
{
	u32 zero = 0;
	struct buffer *b = bpf_map_lookup_elem(&buffers, &zero);

	return b ? b->data : NULL;
}

/* The step that the current task's cgroup, or one above it, was tracked for. */
static __always_inline u32 step_here(void)
{
	u64 id = bpf_get_current_cgroup_id();
	u32 *step = bpf_map_lookup_elem(&cgroups, &id);

	if (step)
		return *step;
	for (int level = 1; level < CGROUP_DEPTH; level++) {
		id = bpf_get_current_ancestor_cgroup_id(level);
		if (!id)
			return 0;
		step = bpf_map_lookup_elem(&cgroups, &id);
		if (step)
			return *step;
	}
	return 0;
}

/* The entry of the current process, NULL when it is not watched. */
static __always_inline struct proc *self(void)
{
	u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct proc *p = bpf_map_lookup_elem(&procs, &pid);
	struct task_struct *task;

	if (!p)
		return NULL;
	task = bpf_get_current_task_btf();
	return p->start == task->group_leader->start_boottime ? p : NULL;
}

static __always_inline void fill(struct head *h, u8 kind, struct proc *p)
{
	h->kind = kind;
	h->proc_flags = p->execed ? PROC_EXECED : 0;
	h->reserved = 0;
	h->step = p->step;
	h->time = bpf_ktime_get_boot_ns();
	h->start = p->start;
	h->origin_start = p->origin_start;
	h->pid = p->pid;
	h->origin_pid = p->origin_pid;
}

/*
 * The verifier tracks the bounds of a value through each iteration of a loop, and off
 * grows with each: since Linux 6.8 it would never be done. It knows nothing of two bytes
 * on the stack that do not begin a slot of eight.
 */
struct walk {
	u8 *buf;
	u64 dentry;
	u64 mnt;
	u32 end;
	u16 off;
	u8 flags;
};

static long climb(u32 i, struct walk *w)
{
	struct dentry *dentry = (void *)w->dentry, *parent;
	struct vfsmount *mnt = (void *)w->mnt;
	u64 off = w->off;
	long n;

	if (dentry == BPF_CORE_READ(mnt, mnt_root)) {
		u64 inside = bpf_core_field_offset(struct mount, mnt);
		struct mount *m = (void *)mnt - inside;
		struct mount *up = BPF_CORE_READ(m, mnt_parent);

		if (up == m) {
			w->flags |= PATH_ROOTED;
			return 1;
		}
		w->dentry = (u64)BPF_CORE_READ(m, mnt_mountpoint);
		w->mnt = (u64)up + inside;
		return 0;
	}
	if (off >= w->end || off > BUF_SIZE - NAME_SIZE) {
		w->flags |= PATH_CUT;
		return 1;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	n = bpf_probe_read_kernel_str(w->buf + off, NAME_SIZE, BPF_CORE_READ(dentry, d_name.name));
	if (n > 0)
		w->off = off + n;
	if (parent == dentry) {
		w->flags |= PATH_PSEUDO;
		return 1;
	}
	w->dentry = (u64)parent;
	return 0;
}

/*
 * Writes the names of a path, leaf first, at buf+off, from the root of the cell's
 * mounts, whatever root directory the process has. Returns the offset behind
 * them. The caller must check it against BUF_SIZE.
 */
static __always_inline u64 put_path(u8 *buf, u64 off, u64 mnt, u64 dentry, u8 *flags)
{
	struct walk w = {
		.buf = buf,
		.dentry = dentry,
		.mnt = mnt,
		.off = off,
		.end = off + PATH_BYTES,
	};

	bpf_loop(PATH_DEPTH, climb, &w, 0);
	if (!(w.flags & (PATH_ROOTED | PATH_PSEUDO)))
		w.flags |= PATH_CUT; /* too deep */
	*flags |= w.flags;
	return w.off;
}

static __always_inline bool unhashed(struct dentry *dentry)
{
	return !BPF_CORE_READ(dentry, d_hash.pprev);
}
