// Package erase removes values from this process's memory: what was read, what a library kept of it,
// what functions left on a stack, and what copying left in registers.
package erase

import (
	"reflect"
	"runtime"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Bytes zeroes memory, and the registers that the runtime copies memory with.
//
//go:noinline
func Bytes(b []byte) {
	clear(b)
	Vectors()
}

// Object zeroes what a pointer in an interface points to. It is of no use afterwards.
func Object(p any) {
	v := reflect.ValueOf(p)
	clear(unsafe.Slice((*byte)(v.UnsafePointer()), v.Type().Elem().Size()))
	runtime.KeepAlive(p)
}

// deep is more than the sealing, opening and hashing of values use of a stack.
const deep = 48 << 10

// Stack zeroes what the functions that the caller has called so far left on its stack.
//
//go:noinline
func Stack() {
	var frame [deep]byte
	Bytes(frame[:])
}

// OnStack runs f on a stack that is zeroed below f's caller when f has
// returned: copies of keys that functions leave in their frames go with it.
// The stack is grown before, because growing would leave a copy of the old one.
func OnStack(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		Stack()
		f()
		Stack()
	}()
	<-done
}

// hasAVX reports whether the vector registers are wider than SSE's. It is never written.
//
//lint:ignore U1000 vectors_amd64.s reads it
var hasAVX = cpu.X86.HasAVX

// Vectors zeroes the vector registers, through which the runtime copies memory. What a
// copy leaves in them the kernel keeps with the thread, for as long as that thread uses no other.
func Vectors() { clearVectors() }

//go:noescape
func clearVectors()
