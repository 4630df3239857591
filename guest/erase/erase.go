// Package erase removes values from this process's memory: what was read, copies in a library,
// in stack frames, and in registers.
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

// Object zeroes the memory that a pointer in an interface points to. The object is unusable afterwards.
func Object(p any) {
	v := reflect.ValueOf(p)
	clear(unsafe.Slice((*byte)(v.UnsafePointer()), v.Type().Elem().Size()))
	runtime.KeepAlive(p)
}

// deep is more stack than sealing, opening and hashing values use.
const deep = 48 << 10

// Stack zeroes what the caller's earlier calls left on the stack.
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

// Vectors zeroes the vector registers, through which the runtime copies memory. Otherwise the kernel keeps
// their contents with the thread, as long as that thread does not overwrite them.
func Vectors() { clearVectors() }

//go:noescape
func clearVectors()
