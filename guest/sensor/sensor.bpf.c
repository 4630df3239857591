//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The sensor's programs: what the watched processes do, as records in rings.
 * Everything hangs on the map "procs": a process is in it because its cgroup
 * is tracked or because its parent was in it, and a task that is not in it
 * costs one lookup.
 */
#include "common.h"
#include "proc.h"
#include "file.h"
#include "flow.h"

char LICENSE[] SEC("license") = "GPL";
