/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Processes: fork, exec, exit. */
#pragma once

#define ARGV_CHUNK 4096
#define ARGV_CHUNKS 8 /* 32 KiB are kept */
#define PROC_HIGH ((2 << 20) / 8)
#define SIGNAL_GROUP_EXIT 4

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct proc *p = self(), new = {};
	u32 pid = child->tgid;

	if (child->pid != pid) {
		if (p)
			__sync_fetch_and_add(&p->threads, 1);
		return 0;
	}
	if (p) {
		new.step = p->step;
		new.origin_pid = p->execed ? p->pid : p->origin_pid;
		new.origin_start = p->execed ? p->start : p->origin_start;
	} else {
		new.step = step_here();
		if (!new.step)
			return 0;
	}
	new.pid = pid;
	new.start = child->start_boottime;
	new.threads = 1;
	if (bpf_map_update_elem(&procs, &pid, &new, BPF_ANY))
		lose(LOSS_EXEC);
	return 0;
}

/* The entry of a process that has just executed something, made if need be. */
static __always_inline struct proc *executed(struct task_struct *task)
{
	struct proc *p = self(), new = {};
	u32 step = step_here(), pid = task->tgid;

	if (p) {
		if (step)
			p->step = step;
		return p;
	}
	if (!step)
		return NULL;
	new.step = step;
	new.pid = pid;
	new.start = task->group_leader->start_boottime;
	new.threads = 1;
	if (bpf_map_update_elem(&procs, &pid, &new, BPF_ANY)) {
		lose(LOSS_EXEC);
		return NULL;
	}
	return bpf_map_lookup_elem(&procs, &pid);
}

struct argv_walk {
	u8 *buf;
	u64 from;
	u64 end;
	u64 at;
};

/* Sends the argv's next chunk in a record of its own. */
static long more_argv(u32 i, struct argv_walk *w)
{
	struct argv_record *r = (void *)w->buf;
	u64 left = w->end - w->at;
	u32 size = left > ARGV_CHUNK ? ARGV_CHUNK : left;

	if (w->at >= w->end || !size)
		return 1;
	if (bpf_probe_read_user(w->buf + sizeof(*r), size, (void *)w->at))
		return 1;
	r->head.kind = KIND_ARGV;
	r->offset = w->at - w->from;
	r->size = size;
	if (bpf_ringbuf_output(&proc_ring, r, sizeof(*r) + size, BPF_RB_FORCE_WAKEUP))
		return 1; /* the record of the exec has the length of argv: the cut shows */
	w->at += size;
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	struct proc *p = executed(task);
	struct mm_struct *mm = task->mm;
	struct exec_record *r;
	struct argv_walk w = {};
	u64 off = sizeof(*r), end;
	struct dentry *dentry;
	struct file *file;
	u32 first;
	u8 *buf;

	if (!p)
		return 0;
	buf = buffer();
	if (!buf || !mm) {
		lose(LOSS_EXEC);
		return 0;
	}
	r = (void *)buf;
	__builtin_memset(r, 0, sizeof(*r));
	fill(&r->head, KIND_EXEC, p);
	if (!p->execed)
		p->execed = r->head.time;
	r->ppid = task->real_parent->tgid;
	r->uid = bpf_get_current_uid_gid();
	w.from = mm->arg_start;
	w.end = mm->arg_end;
	r->argv_size = w.end - w.from;

	file = mm->exe_file;
	dentry = file->f_path.dentry;
	end = put_path(buf, off, (u64)file->f_path.mnt, (u64)dentry, &r->exe_flags);
	if (unhashed(dentry) && dentry->d_parent != file->f_path.mnt->mnt_root)
		r->exe_flags |= PATH_DELETED;
	r->exe_size = end - off;
	off = end;
	if (off > BUF_SIZE / 2)
		return 0;
	end = put_path(buf, off, (u64)task->fs->pwd.mnt, (u64)task->fs->pwd.dentry, &r->cwd_flags);
	r->cwd_size = end - off;
	off = end;
	if (off > BUF_SIZE - ARGV_CHUNK)
		return 0;

	first = r->argv_size > ARGV_CHUNK ? ARGV_CHUNK : r->argv_size;
	if (bpf_probe_read_user(buf + off, first, (void *)w.from))
		first = 0;
	r->argv_kept = first;
	off += first;
	if (off > BUF_SIZE)
		return 0;
	if (send(&proc_ring, PROC_HIGH, LOSS_EXEC, buf, off))
		return 0;
	if (first < ARGV_CHUNK)
		return 0;
	w.buf = buf;
	w.at = w.from + first;
	bpf_loop(ARGV_CHUNKS - 1, more_argv, &w, 0);
	return 0;
}

/*
 * Runs in each dying task after its files were released and before its parent
 * is reported, so that the exit is the last record of a process and is there when
 * the parent's wait returns.
 */
SEC("fentry/cgroup_exit")
int BPF_PROG(exited, struct task_struct *task)
{
	struct proc *p = self();
	struct signal_struct *sig = task->signal;
	struct exit_record r = {};
	u32 pid = task->tgid;

	if (!p || __sync_fetch_and_add(&p->threads, -1) != 1)
		return 0;
	fill(&r.head, KIND_EXIT, p);
	r.execed = p->execed;
	r.status = sig->flags & SIGNAL_GROUP_EXIT ? sig->group_exit_code
						  : task->group_leader->exit_code;
	bpf_map_delete_elem(&procs, &pid);
	if (r.execed)
		send(&proc_ring, PROC_HIGH, LOSS_EXIT, &r, sizeof(r));
	return 0;
}
