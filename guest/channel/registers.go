package channel

import "golang.org/x/sys/cpu"

// hasAVX says whether the vector registers are wider than SSE's. It is never written.
var hasAVX = cpu.X86.HasAVX

// clearVectors zeroes the vector registers, through which the runtime copies memory. What a
// copy leaves in them the kernel keeps with the thread, for as long as that thread uses no other.
//
//go:noescape
func clearVectors()
