/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * What the programs write into the rings. record.go reads the same layouts,
 * little endian. A path is its names from the leaf upward, each ended by NUL.
 */
#pragma once

enum kind {
	KIND_EXEC = 1,
	KIND_ARGV = 2, /* more of the exec's argv, in order */
	KIND_EXIT = 3,
	KIND_FILE = 4,
	KIND_FLOW = 5,
};

/* indexes of the loss counters, and of audit kinds in loss.go */
enum loss {
	LOSS_EXEC,
	LOSS_EXIT,
	LOSS_FILE,
	LOSS_FLOW,
	LOSS_MAX,
};

enum op {
	OP_CREATE = 1,
	OP_WRITE = 2,
	OP_READ = 3,
	OP_RENAME = 4,
	OP_DELETE = 5,
	OP_LINK = 6,   /* a further name, path, of what "to" names */
	OP_CHROOT = 7, /* the process's root directory is now path */
};

enum path_flag {
	PATH_DELETED = 1, /* no longer has this name */
	PATH_CUT = 2,     /* longer than we keep: the upper part is missing */
	PATH_PSEUDO = 4,  /* belongs to no mount (memfd) */
	PATH_ROOTED = 8,  /* ended at the root of the mounts */
};

enum proc_flag {
	PROC_EXECED = 1, /* this process has had an exec of its own */
};

enum file_flag {
	FILE_HANDLE = 1, /* fanotify reports this close too */
	FILE_MAPPED = 2, /* written through a mapping that outlived the descriptor */
	FILE_REPLACED = 4,  /* the rename deleted what had the new name */
	FILE_EXCHANGED = 8, /* the rename swapped both names */
	FILE_SHARED = 16,   /* another open file or mapping can still write it */
	FILE_SECRET = 32,   /* opened for reading in a file system that holds a step's secrets */
};

struct head {
	u8 kind;
	u8 proc_flags;
	u16 reserved;
	u32 step;
	u64 time;  /* boot clock, ns */
	u64 start; /* of the process, boot clock, ns */
	u64 origin_start;
	u32 pid;
	u32 origin_pid; /* nearest ancestor with an exec, 0 when none is tracked */
};

struct exec_record {
	struct head head;
	u32 ppid;
	u32 uid;
	u32 argv_size; /* whole */
	u32 argv_kept; /* bytes in this record */
	u16 exe_size;
	u16 cwd_size;
	u8 exe_flags;
	u8 cwd_flags;
	u16 reserved;
	/* exe, cwd, argv */
};

struct argv_record {
	struct head head;
	u32 offset;
	u32 size;
};

struct exit_record {
	struct head head;
	u64 execed; /* time of the first exec */
	u32 status; /* as wait(2) gives it */
	u32 reserved;
};

struct file_record {
	struct head head;
	u64 inode; /* kernel address: an identity, never followed */
	u64 generation; /* of the content: grows when the file is opened or closed for writing, or truncated */
	u64 ino;
	u64 to_ino; /* of what a rename replaced or swapped with */
	s64 size;
	u32 dev; /* as the kernel keeps it: 12 bits major, 20 bits minor */
	u32 reserved;
	u16 path_size;
	u16 to_size;
	u8 op;
	u8 flags;
	u8 path_flags;
	u8 to_flags;
	/* path, to */
};

struct flow_record {
	struct head head;
	u8 addr[16];
	u16 family;
	u16 port;
	u16 proto;
	u16 local_port;
	s32 err;
	u8 local4[4]; /* of the socket as it is bound, zero: to none */
	u8 local6[16];
};
