/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Files: created, closed after writing or reading, renamed, deleted. */
#pragma once

#define FMODE_READ 0x1
#define FMODE_WRITE 0x2
#define FMODE_CREATED 0x100000
#define OPENED_FOR_EXEC 0x20 /* in f_flags */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define MAP_SHARED 1 /* also set in MAP_SHARED_VALIDATE */
#define RENAME_EXCHANGE 2
#define F_GETFL 3
#define FILE_HIGH ((4 << 20) / 8)
#define OVERLAYFS_MAGIC 0x794c7630
#define TMPFS_MAGIC 0x01021994

/* fcntl(fd, F_GETFL, cookie) by the sensor asks which inode fd stands for */
volatile u64 cookie; /* 0: nobody asks */
volatile u64 identified;

SEC("fentry/security_file_fcntl")
int BPF_PROG(identify, struct file *file, unsigned int cmd, unsigned long arg)
{
	if (cmd == F_GETFL && cookie && arg == cookie)
		identified = (u64)file->f_inode;
	return 0;
}

/* File systems that are interfaces of the kernel, not places for content. */
static __always_inline bool interface_fs(unsigned long magic)
{
	switch (magic) {
	case 0x9fa0:     /* proc */
	case 0x62656572: /* sysfs */
	case 0x1cd1:     /* devpts */
	case 0x27e0eb:   /* cgroup */
	case 0x63677270: /* cgroup2 */
	case 0x73636673: /* securityfs */
	case 0x64626720: /* debugfs */
	case 0x74726163: /* tracefs */
	case 0xcafe4a11: /* bpf */
	case 0x6e736673: /* nsfs */
	case 0x19800202: /* mqueue */
	case 0x958458f6: /* hugetlbfs */
		return true;
	}
	return false;
}

static __always_inline bool regular(struct inode *inode)
{
	return (inode->i_mode & S_IFMT) == S_IFREG;
}

static __always_inline void put_inode(struct file_record *r, struct inode *inode)
{
	struct inode___seconds *seconds = (void *)inode;

	r->size = BPF_CORE_READ(inode, i_size);
	r->ino = BPF_CORE_READ(inode, i_ino);
	r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	if (bpf_core_field_exists(seconds->i_mtime_sec)) {
		r->mtime_sec = BPF_CORE_READ(seconds, i_mtime_sec);
		r->mtime_nsec = BPF_CORE_READ(seconds, i_mtime_nsec);
	} else {
		r->mtime_sec = BPF_CORE_READ(inode, i_mtime.tv_sec);
		r->mtime_nsec = BPF_CORE_READ(inode, i_mtime.tv_nsec);
	}
}

static __always_inline struct file_record *file_record(u8 *buf, struct proc *p, u8 op)
{
	struct file_record *r = (void *)buf;

	__builtin_memset(r, 0, sizeof(*r));
	fill(&r->head, KIND_FILE, p);
	r->op = op;
	return r;
}

/* Reports one operation on an object that a mount and a dentry name. */
static __always_inline void report(struct proc *p, u8 op, u8 flags, u64 mnt, struct dentry *dentry,
				   struct inode *content)
{
	u8 *buf = buffer();
	struct file_record *r;
	u64 off = sizeof(*r);

	if (!buf) {
		lose(LOSS_FILE);
		return;
	}
	r = file_record(buf, p, op);
	if (BPF_CORE_READ(dentry, d_sb, s_magic) == TMPFS_MAGIC)
		flags |= FILE_MEMORY;
	r->flags = flags;
	r->inode = (u64)BPF_CORE_READ(dentry, d_inode);
	if (content)
		put_inode(r, content);
	if (unhashed(dentry))
		r->path_flags = PATH_DELETED;
	off = put_path(buf, off, p, mnt, (u64)dentry, &r->path_flags);
	if (off > BUF_SIZE)
		return;
	r->path_size = off - sizeof(*r);
	send(&file_ring, FILE_HIGH, LOSS_FILE, buf, off);
}

static __always_inline void touch(struct inode *inode)
{
	u64 key = (u64)inode, now = bpf_ktime_get_boot_ns();

	bpf_map_update_elem(&touched, &key, &now, BPF_ANY);
}

SEC("fentry/security_file_open")
int BPF_PROG(opened, struct file *file)
{
	struct dentry *dentry;
	struct inode *inode = file->f_inode;
	u32 mode = file->f_mode;
	u64 key = (u64)file;
	struct proc *p;

	if (!(mode & (FMODE_WRITE | FMODE_CREATED)) || !regular(inode))
		return 0;
	dentry = file->f_path.dentry;
	if (dentry->d_sb != inode->i_sb || interface_fs(inode->i_sb->s_magic))
		return 0;
	p = self();
	if (!p)
		return 0;
	if (mode & FMODE_WRITE) {
		bpf_map_update_elem(&writers, &key, p, BPF_ANY);
		touch(inode);
	}
	if (mode & FMODE_CREATED && !unhashed(dentry))
		report(p, OP_CREATE, 0, (u64)file->f_path.mnt, dentry, inode);
	return 0;
}

/*
 * A shared mapping of an overlay file holds the backing file, not the
 * overlay's: pages can be written after the last descriptor is closed.
 */
SEC("fentry/security_mmap_file")
int BPF_PROG(mmapped, struct file *file, unsigned long prot, unsigned long flags)
{
	u8 yes = 1;
	u64 key;

	if (!file || !(flags & MAP_SHARED))
		return 0;
	if (!(file->f_mode & FMODE_WRITE) || file->f_inode->i_sb->s_magic != OVERLAYFS_MAGIC)
		return 0;
	if (!self())
		return 0;
	key = (u64)file->private_data;
	if (bpf_map_update_elem(&mapped, &key, &yes, BPF_ANY))
		lose(LOSS_FILE);
	return 0;
}

static __always_inline s64 references(struct file *file)
{
	struct file___ref *since_6_13 = (void *)file;

	if (bpf_core_field_exists(since_6_13->f_ref))
		return BPF_CORE_READ(since_6_13, f_ref.refcnt.counter) + 1; /* which counts from 0 */
	return BPF_CORE_READ(file, f_count.counter);
}

/* Says whether a mapping outlives this file, and forgets one that does not. */
static __always_inline bool stays_mapped(struct file *backing)
{
	u64 key = (u64)backing;

	if (!bpf_map_lookup_elem(&mapped, &key))
		return false;
	if (references(backing) > 1)
		return true;
	bpf_map_delete_elem(&mapped, &key);
	return false;
}

/* Says whether the content can still change without another open. */
static __always_inline bool shared(struct file *file)
{
	struct file *backing = file->private_data;

	if (file->f_inode->i_sb->s_magic != OVERLAYFS_MAGIC)
		return file->f_inode->i_writecount.counter > 1;
	return stays_mapped(backing) || BPF_CORE_READ(backing, f_inode, i_writecount.counter) > 1;
}

/* An overlay's backing file counts only when a mapping kept it. */
static __always_inline int backing_released(struct file *file, struct dentry *dentry)
{
	u64 key = (u64)file;
	struct proc *p;

	if (bpf_map_delete_elem(&mapped, &key))
		return 0;
	p = self();
	if (p)
		report(p, OP_WRITE, FILE_MAPPED, (u64)file->f_path.mnt, dentry, file->f_inode);
	return 0;
}

static __always_inline void written(struct file *file, struct dentry *dentry)
{
	struct proc *p = self(), owner;
	u64 key = (u64)file;

	if (!p) {
		p = bpf_map_lookup_elem(&writers, &key);
		if (!p)
			return;
		owner = *p;
		p = &owner;
	}
	bpf_map_delete_elem(&writers, &key);
	report(p, OP_WRITE, FILE_HANDLE | (shared(file) ? FILE_SHARED : 0), (u64)file->f_path.mnt, dentry,
	       file->f_inode);
}

/* The last reference to an open file is gone; fanotify's event follows in the same call. */
SEC("fentry/__fput")
int BPF_PROG(released, struct file *file)
{
	struct inode *inode = file->f_inode;
	struct dentry *dentry = file->f_path.dentry;
	u32 mode = file->f_mode;
	struct proc *p;

	if (!(mode & (FMODE_READ | FMODE_WRITE)) || !inode || !regular(inode))
		return 0;
	if (dentry->d_sb != inode->i_sb)
		return mode & FMODE_WRITE ? backing_released(file, dentry) : 0;
	if (interface_fs(inode->i_sb->s_magic))
		return 0;
	if (dentry->d_parent == dentry)
		return 0; /* memory without a name (memfd, SysV): not a file */
	if (mode & FMODE_WRITE) {
		written(file, dentry);
		return 0;
	}
	if (file->f_flags & OPENED_FOR_EXEC || read_over < 0 || inode->i_size <= read_over)
		return 0;
	p = self();
	if (p)
		report(p, OP_READ, 0, (u64)file->f_path.mnt, dentry, inode);
	return 0;
}

/* truncate(2) writes without opening. */
SEC("fexit/vfs_truncate")
int BPF_PROG(truncated, struct path *path, s64 length, long ret)
{
	struct dentry *dentry = path->dentry;
	struct proc *p;

	if (ret)
		return 0;
	p = self();
	if (!p || interface_fs(dentry->d_sb->s_magic))
		return 0;
	touch(dentry->d_inode);
	report(p, OP_WRITE, 0, (u64)path->mnt, dentry, dentry->d_inode);
	return 0;
}

/*
 * Operations on names. The check (security_path_*) knows the mount, the
 * operation (vfs_*) knows the result: the first leaves an intent with the task,
 * the second reports it. An overlay calls vfs_* again for its upper layer;
 * those dentries are not the intent's and are passed over.
 */
static __always_inline struct intent *intend(struct path *dir, struct dentry *dentry)
{
	struct intent *in;

	if (!self() || interface_fs(dir->dentry->d_sb->s_magic))
		return NULL;
	in = bpf_task_storage_get(&intents, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!in) {
		lose(LOSS_FILE);
		return NULL;
	}
	in->dentry = (u64)dentry;
	in->dir = (u64)dir->dentry;
	in->mnt = (u64)dir->mnt;
	return in;
}

#define INTENT(hook)                                                                \
	SEC("fentry/security_path_" #hook)                                          \
	int BPF_PROG(may_##hook, struct path *dir, struct dentry *dentry)           \
	{                                                                           \
		intend(dir, dentry);                                                \
		return 0;                                                           \
	}

INTENT(mknod)
INTENT(mkdir)
INTENT(symlink)
INTENT(unlink)
INTENT(rmdir)

SEC("fentry/security_path_link")
int BPF_PROG(may_link, struct dentry *old, struct path *dir, struct dentry *dentry)
{
	intend(dir, dentry);
	return 0;
}

SEC("fentry/security_path_rename")
int BPF_PROG(may_rename, struct path *old_dir, struct dentry *old, struct path *dir, struct dentry *dentry,
	     unsigned int flags)
{
	struct intent *in = intend(old_dir, old);

	if (!in)
		return 0;
	in->exchanges = flags & RENAME_EXCHANGE;
	in->replaces = !in->exchanges && dentry->d_inode;
	bpf_probe_read_kernel_str(in->name, NAME_SIZE, old->d_name.name);
	return 0;
}

/* An int below zero; mkdir gives a pointer since Linux 6.15, whose upper half is neither 0 nor -1 on success. */
static __always_inline bool failed(u64 ret)
{
	u32 upper = ret >> 32;

	return (upper == 0 || upper == 0xffffffff) && (s32)ret < 0;
}

/* The intent that this operation fulfils, if it succeeded. */
static __always_inline struct intent *fulfilled(void *ctx, struct dentry *dentry)
{
	struct intent *in;
	u64 ret;

	if (bpf_get_func_ret(ctx, &ret) || failed(ret))
		return NULL;
	in = bpf_task_storage_get(&intents, bpf_get_current_task_btf(), 0, 0);
	if (!in || in->dentry != (u64)dentry)
		return NULL;
	in->dentry = 0;
	return in;
}

static __always_inline int named(void *ctx, u8 op, struct dentry *dentry)
{
	struct proc *p = self();
	struct intent *in;

	if (!p)
		return 0;
	in = fulfilled(ctx, dentry);
	if (in)
		report(p, op, 0, in->mnt, dentry, op == OP_CREATE ? BPF_CORE_READ(dentry, d_inode) : NULL);
	return 0;
}

/* position_* is which argument the dentry is; load.go takes it from the kernel's BTF */
#define DONE(op, function)                                                         \
	const volatile u32 position_##function;                                    \
                                                                                   \
	SEC("fexit/" #function)                                                    \
	int done_##function(u64 *ctx)                                              \
	{                                                                          \
		u64 dentry;                                                        \
                                                                                   \
		if (bpf_get_func_arg(ctx, position_##function, &dentry))           \
			return 0;                                                  \
		return named(ctx, op, (void *)dentry);                             \
	}

DONE(OP_CREATE, vfs_create)
DONE(OP_CREATE, vfs_mknod)
DONE(OP_CREATE, vfs_mkdir)
DONE(OP_CREATE, vfs_symlink)
DONE(OP_CREATE, vfs_link)
DONE(OP_DELETE, vfs_unlink)
DONE(OP_DELETE, vfs_rmdir)

SEC("fexit/vfs_rename")
int BPF_PROG(done_vfs_rename, struct renamedata *rd)
{
	struct dentry *dentry = rd->old_dentry;
	struct proc *p = self();
	struct file_record *r;
	struct intent *in;
	u64 off = sizeof(*r), end;
	long name;
	u8 *buf;

	if (!p)
		return 0;
	in = fulfilled(ctx, dentry);
	if (!in)
		return 0;
	buf = buffer();
	if (!buf) {
		lose(LOSS_FILE);
		return 0;
	}
	r = file_record(buf, p, OP_RENAME);
	r->flags = (in->replaces ? FILE_REPLACED : 0) | (in->exchanges ? FILE_EXCHANGED : 0);
	put_inode(r, dentry->d_inode);
	name = bpf_probe_read_kernel_str(buf + off, NAME_SIZE, in->name);
	if (name < 0)
		name = 0;
	end = put_path(buf, off + name, p, in->mnt, in->dir, &r->path_flags);
	r->path_size = end - off;
	off = end;
	if (off > BUF_SIZE / 2)
		return 0;
	end = put_path(buf, off, p, in->mnt, (u64)dentry, &r->to_flags);
	r->to_size = end - off;
	if (end > BUF_SIZE)
		return 0;
	send(&file_ring, FILE_HIGH, LOSS_FILE, buf, end);
	return 0;
}
