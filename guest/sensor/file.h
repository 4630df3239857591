/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Files: created, closed after writing or reading, renamed, deleted. */
#pragma once

#define FMODE_READ 0x1
#define FMODE_WRITE 0x2
#define FMODE_PATH 0x4000
#define FMODE_CREATED 0x100000
#define OPENED_FOR_EXEC 0x20 /* in f_flags */
#define S_IFMT 0170000
#define S_IFREG 0100000
#define RENAME_EXCHANGE 2
#define F_GETFL 3
#define EEXIST 17
#define FILE_HIGH ((4 << 20) / 8)
#define OVERLAYFS_MAGIC 0x794c7630
#define MNT_NS_INTERNAL ((void *)-22L)

/* What the sensor asks about an open file. Its own descriptor is for reading only. */
struct identity {
	u64 inode;
	u64 generation; /* 0: not known */
	u64 ino;
	u64 content_ino; /* of the file that holds the content: an overlay's is in a layer */
	u32 dev;
	u32 content_dev;
	u32 content_fs; /* magic number */
	u32 writers; /* open files and mappings through which the content can be written */
};

/* fcntl(fd, F_GETFL, cookie) by the sensor asks for the identity of fd */
volatile u64 cookie; /* 0: no query */
struct identity identified;

static __always_inline bool overlaid(struct inode *inode)
{
	return BPF_CORE_READ(inode, i_sb, s_magic) == OVERLAYFS_MAGIC;
}

/* The file that holds the content: an overlay's regular file has one in a layer open. */
static __always_inline struct file *backing(struct file *file)
{
	if (overlaid(file->f_inode) && !(file->f_mode & FMODE_PATH))
		return file->private_data;
	return file;
}

/* How often an inode is open for writing. The count is negative while the file is executed: none can then. */
static __always_inline u32 writers_of(struct inode *inode)
{
	int n = BPF_CORE_READ(inode, i_writecount.counter);

	return n > 0 ? n : 0;
}

SEC("fentry/security_file_fcntl")
int BPF_PROG(identify, struct file *file, unsigned int cmd, unsigned long arg)
{
	struct inode *inode = file->f_inode, *content;
	u64 key = (u64)inode, *generation;
	u32 outer, inner;

	if (cmd != F_GETFL || !cookie || arg != cookie)
		return 0;
	content = BPF_CORE_READ(backing(file), f_inode);
	generation = bpf_map_lookup_elem(&generations, &key);
	identified.inode = key;
	identified.generation = generation && !unproven ? *generation : 0;
	identified.ino = inode->i_ino;
	identified.dev = inode->i_sb->s_dev;
	identified.content_ino = BPF_CORE_READ(content, i_ino);
	identified.content_dev = BPF_CORE_READ(content, i_sb, s_dev);
	identified.content_fs = BPF_CORE_READ(content, i_sb, s_magic);
	outer = writers_of(inode);
	inner = writers_of(content);
	identified.writers = outer > inner ? outer : inner;
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
	r->size = BPF_CORE_READ(inode, i_size);
	r->ino = BPF_CORE_READ(inode, i_ino);
	r->dev = BPF_CORE_READ(inode, i_sb, s_dev);
}

/* Begins the record of an operation; NULL, and counted as lost, without a buffer. */
static __always_inline struct file_record *begin(struct proc *p, u8 op)
{
	struct file_record *r = (void *)buffer();

	if (!r) {
		lose(LOSS_FILE);
		return NULL;
	}
	__builtin_memset(r, 0, sizeof(*r));
	fill(&r->head, KIND_FILE, p);
	r->op = op;
	return r;
}

/* Ends the record with the path of what a mount and a dentry name, and sends it. */
static __always_inline void finish(struct file_record *r, u64 mnt, struct dentry *dentry)
{
	u64 off = sizeof(*r);

	r->inode = (u64)BPF_CORE_READ(dentry, d_inode);
	if (unhashed(dentry))
		r->path_flags = PATH_DELETED;
	off = put_path((u8 *)r, off, mnt, (u64)dentry, &r->path_flags);
	if (off > BUF_SIZE)
		return;
	r->path_size = off - sizeof(*r);
	send(&file_ring, FILE_HIGH, LOSS_FILE, r, off);
}

/*
 * Reports what happened to the inode at path. content has its size: an overlay's own
 * is behind while another process writes. generation is 0 if the content is not to be hashed.
 */
static __always_inline void report(struct proc *p, u8 op, u8 flags, struct path *path, struct inode *content,
				   u64 generation)
{
	struct dentry *dentry = BPF_CORE_READ(path, dentry);
	struct file_record *r = begin(p, op);

	if (!r)
		return;
	r->flags = flags;
	r->generation = generation;
	put_inode(r, BPF_CORE_READ(dentry, d_inode));
	r->size = BPF_CORE_READ(content, i_size);
	finish(r, (u64)BPF_CORE_READ(path, mnt), dentry);
}

/*
 * Gives an inode's content a new generation and returns it. Every opening and
 * closing for writing and every truncation does, of any process: while
 * the generation is the same and no process has the file open for writing, the
 * content is the same. Where the map has no room the generation is not known.
 */
static __always_inline u64 renew(struct inode *inode)
{
	u64 key = (u64)inode, now = __sync_fetch_and_add(&last_generation, 1) + 1;

	if (bpf_map_update_elem(&generations, &key, &now, BPF_ANY))
		bpf_map_delete_elem(&generations, &key);
	return now;
}

/* The generation of an inode's content, a new one if it is not known. */
static __always_inline u64 current(struct inode *inode)
{
	u64 key = (u64)inode, *known = bpf_map_lookup_elem(&generations, &key);

	return known ? *known : renew(inode);
}

/* A mount that no process can name: an overlay works in its layers through such. */
static __always_inline bool internal(struct vfsmount *mnt)
{
	struct mount *m = (void *)mnt - bpf_core_field_offset(struct mount, mnt);

	return BPF_CORE_READ(m, mnt_ns) == MNT_NS_INTERNAL;
}

/* The file system holds the secrets of a step. */
static __always_inline bool secret(struct inode *inode)
{
	u32 dev = BPF_CORE_READ(inode, i_sb, s_dev);

	return bpf_map_lookup_elem(&secret_devices, &dev);
}

/* Reports that a process opens the file of a secret for reading, the first time that it does. */
static __always_inline void secret_opened(struct file *file, struct inode *inode)
{
	struct proc *p = self();
	struct secret_reader key = {};
	u8 seen = 1;

	if (!p)
		return;
	key.inode = (u64)inode;
	key.start = p->start;
	key.pid = p->pid;
	/* before Linux 6.4 the upper half of the result is not set */
	if ((s32)bpf_map_update_elem(&secret_readers, &key, &seen, BPF_NOEXIST) == -EEXIST)
		return;
	report(p, OP_READ, FILE_SECRET, &file->f_path, inode, 0);
}

SEC("fentry/security_file_open")
int BPF_PROG(opened, struct file *file)
{
	struct dentry *dentry;
	struct inode *inode = file->f_inode;
	u32 mode = file->f_mode;
	u64 key = (u64)file;
	struct proc *p;

	if (!regular(inode))
		return 0;
	if (mode & FMODE_READ && !(mode & FMODE_CREATED) && secret(inode))
		secret_opened(file, inode);
	if (!(mode & (FMODE_WRITE | FMODE_CREATED)))
		return 0;
	dentry = file->f_path.dentry;
	if (dentry->d_sb != inode->i_sb || interface_fs(inode->i_sb->s_magic) || internal(file->f_path.mnt))
		return 0;
	if (mode & FMODE_WRITE)
		renew(inode);
	p = self();
	if (!p)
		return 0;
	if (mode & FMODE_WRITE && bpf_map_update_elem(&writers, &key, p, BPF_ANY))
		lose(LOSS_FILE); /* its close would have no process if a kernel thread did it */
	if (mode & FMODE_CREATED && !unhashed(dentry))
		report(p, OP_CREATE, 0, &file->f_path, inode, 0);
	return 0;
}

static __always_inline s64 references(struct file *file)
{
	struct file___ref *since_6_13 = (void *)file;

	if (bpf_core_field_exists(since_6_13->f_ref))
		return BPF_CORE_READ(since_6_13, f_ref.refcnt.counter) + 1; /* which counts from 0 */
	return BPF_CORE_READ(file, f_count.counter);
}

/*
 * Returns whether the content can still be written when this file is gone, and
 * remembers an overlay's backing file that a mapping keeps: its own release
 * then ends the writing. That can be done by the last user of the memory,
 * so it is the doing of p.
 */
static __always_inline bool shared(struct file *file, struct proc *p)
{
	struct file *inner = backing(file);
	u64 key = (u64)inner;

	if (inner != file && references(inner) > 1) {
		if (bpf_map_update_elem(&mapped, &key, p, BPF_ANY)) {
			unproven = 1;
			lose(LOSS_FILE);
		}
		return true;
	}
	return writers_of(BPF_CORE_READ(inner, f_inode)) > 1;
}

/*
 * An overlay's backing file counts only when a mapping kept it. The new
 * generation goes to the overlay's inode, which everybody opens.
 */
static __always_inline int backing_released(struct file *file, struct dentry *dentry)
{
	u64 key = (u64)file, generation;
	struct proc *p = bpf_map_lookup_elem(&mapped, &key), owner;

	if (!p)
		return 0;
	owner = *p;
	bpf_map_delete_elem(&mapped, &key);
	generation = renew(BPF_CORE_READ(dentry, d_inode));
	p = self();
	report(p ? p : &owner, OP_WRITE, FILE_MAPPED, &file->f_path, file->f_inode, generation);
	return 0;
}

static __always_inline void written(struct file *file)
{
	u64 key = (u64)file, generation = renew(file->f_inode);
	struct proc *p = self(), owner;
	u8 flags = FILE_HANDLE;

	if (!p) {
		p = bpf_map_lookup_elem(&writers, &key);
		if (!p)
			return;
		owner = *p;
		p = &owner;
	}
	bpf_map_delete_elem(&writers, &key);
	if (shared(file, p))
		flags |= FILE_SHARED;
	report(p, OP_WRITE, flags, &file->f_path, BPF_CORE_READ(backing(file), f_inode), generation);
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
	if (interface_fs(inode->i_sb->s_magic) || internal(file->f_path.mnt))
		return 0;
	if (dentry->d_parent == dentry)
		return 0; /* memory without a name (memfd, SysV): not a file */
	if (mode & FMODE_WRITE) {
		written(file);
		return 0;
	}
	if (file->f_flags & OPENED_FOR_EXEC || read_over < 0 || inode->i_size <= read_over || secret(inode))
		return 0;
	p = self();
	if (p)
		report(p, OP_READ, 0, &file->f_path, inode, current(inode));
	return 0;
}

/*
 * truncate(2) writes without opening. The generation is new before it begins,
 * while it holds the inode open for writing, and after it: who hashes then sees one of the two.
 */
SEC("fentry/vfs_truncate")
int BPF_PROG(truncating, struct path *path)
{
	renew(path->dentry->d_inode);
	return 0;
}

SEC("fexit/vfs_truncate")
int BPF_PROG(truncated, struct path *path, s64 length, long ret)
{
	struct dentry *dentry = path->dentry;
	struct proc *p;
	u64 generation;

	if (ret)
		return 0;
	generation = renew(dentry->d_inode);
	p = self();
	if (p && !interface_fs(dentry->d_sb->s_magic))
		report(p, OP_WRITE, 0, path, dentry->d_inode, generation);
	return 0;
}

/* open(2) for reading only with O_TRUNC empties a file; position_file is the argument of that type. */
const volatile u32 position_file;

static __always_inline struct file *emptied(u64 *ctx)
{
	u64 file;

	if (bpf_get_func_arg(ctx, position_file, &file) || !file)
		return NULL;
	return BPF_CORE_READ((struct file *)file, f_mode) & FMODE_WRITE ? NULL : (void *)file;
}

SEC("fentry/do_truncate")
int emptying(u64 *ctx)
{
	struct file *file = emptied(ctx);

	if (file)
		renew(BPF_CORE_READ(file, f_inode));
	return 0;
}

SEC("fexit/do_truncate")
int done_emptying(u64 *ctx)
{
	struct file *file = emptied(ctx);
	struct inode *inode;
	struct proc *p;
	u64 ret, generation;

	if (!file || bpf_get_func_ret(ctx, &ret) || ret)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	generation = renew(inode);
	p = self();
	if (p && !interface_fs(BPF_CORE_READ(inode, i_sb, s_magic)))
		report(p, OP_WRITE, 0, &file->f_path, inode, generation);
	return 0;
}

/* A new root directory hides where the process is: paths do not follow it, the record says when. */
SEC("fexit/security_path_chroot")
int BPF_PROG(chrooted, struct path *path, int ret)
{
	struct proc *p = self();

	if (p && !ret)
		report(p, OP_CHROOT, 0, path, path->dentry->d_inode, 0);
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
	in->ino = BPF_CORE_READ(dentry, d_inode, i_ino);
	in->dev = BPF_CORE_READ(dentry, d_sb, s_dev);
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
	struct intent *in = intend(dir, dentry);

	if (in)
		in->source = (u64)old;
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
	in->to_ino = BPF_CORE_READ(dentry, d_inode, i_ino);
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
	struct file_record *r;
	struct intent *in;

	if (!p)
		return 0;
	in = fulfilled(ctx, dentry);
	if (!in)
		return 0;
	r = begin(p, op);
	if (!r)
		return 0;
	if (op == OP_CREATE) {
		put_inode(r, BPF_CORE_READ(dentry, d_inode));
	} else { /* the dentry may have no inode any more */
		r->ino = in->ino;
		r->dev = in->dev;
	}
	finish(r, in->mnt, dentry);
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
DONE(OP_DELETE, vfs_unlink)
DONE(OP_DELETE, vfs_rmdir)

/* Ends and sends a record with two paths: the first is in it, up to off; the second is a dentry's. */
static __always_inline void finish_two(struct file_record *r, u64 off, u64 mnt, struct dentry *second)
{
	u64 end;

	r->path_size = off - sizeof(*r);
	if (off > BUF_SIZE / 2)
		return;
	end = put_path((u8 *)r, off, mnt, (u64)second, &r->to_flags);
	r->to_size = end - off;
	if (end > BUF_SIZE)
		return;
	send(&file_ring, FILE_HIGH, LOSS_FILE, r, end);
}

const volatile u32 position_vfs_link;

SEC("fexit/vfs_link")
int done_vfs_link(u64 *ctx)
{
	struct proc *p = self();
	struct dentry *dentry, *source;
	struct file_record *r;
	struct intent *in;
	u64 arg, off;

	if (!p || bpf_get_func_arg(ctx, position_vfs_link, &arg))
		return 0;
	dentry = (void *)arg;
	in = fulfilled(ctx, dentry);
	if (!in)
		return 0;
	r = begin(p, OP_LINK);
	if (!r)
		return 0;
	put_inode(r, BPF_CORE_READ(dentry, d_inode));
	source = (void *)in->source;
	if (unhashed(source))
		r->to_flags = PATH_DELETED;
	off = put_path((u8 *)r, sizeof(*r), in->mnt, (u64)dentry, &r->path_flags);
	finish_two(r, off, in->mnt, source);
	return 0;
}

SEC("fexit/vfs_rename")
int BPF_PROG(done_vfs_rename, struct renamedata *rd)
{
	struct dentry *dentry = rd->old_dentry;
	struct proc *p = self();
	struct file_record *r;
	struct intent *in;
	u64 off = sizeof(*r);
	long name;

	if (!p)
		return 0;
	in = fulfilled(ctx, dentry);
	if (!in)
		return 0;
	r = begin(p, OP_RENAME);
	if (!r)
		return 0;
	r->flags = (in->replaces ? FILE_REPLACED : 0) | (in->exchanges ? FILE_EXCHANGED : 0);
	put_inode(r, dentry->d_inode);
	r->to_ino = in->to_ino;
	name = bpf_probe_read_kernel_str((u8 *)r + off, NAME_SIZE, in->name);
	if (name < 0)
		name = 0;
	off = put_path((u8 *)r, off + name, in->mnt, in->dir, &r->path_flags);
	finish_two(r, off, in->mnt, dentry);
	return 0;
}
