#include "textflag.h"

// func spawn(args unsafe.Pointer, size uintptr, head unsafe.Pointer) int
//
// The kernel keeps every register but AX, CX and R11 over a system call, so the
// child finds its way with R12 (header), BX (next call), R13 (count), R15
// (index) and BP (remembered errno) alone.
TEXT ·spawn(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ head+16(FP), R12
	MOVQ $435, AX          // clone3
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, ret+24(FP)
	RET

child:
	MOVQ 16(R12), BX
	MOVQ 0(BX), R13
	ADDQ $8, BX
	XORQ R15, R15
	XORQ BP, BP

next:
	CMPQ R15, R13
	JAE  end
	MOVQ 0(BX), AX
	MOVQ 8(BX), DI
	MOVQ 16(BX), SI
	MOVQ 24(BX), DX
	MOVQ 32(BX), R10
	MOVQ 40(BX), R8
	MOVQ 48(BX), R9
	SYSCALL
	CMPQ AX, $0xfffffffffffff001
	JLS  done
	NEGQ AX
	MOVQ 56(BX), CX
	TESTQ $1, CX           // mayFail
	JNZ  done
	TESTQ $2, CX           // candidate
	JZ   fail
	CMPQ AX, $2            // ENOENT
	JEQ  done
	CMPQ AX, $20           // ENOTDIR
	JEQ  done
	MOVQ AX, BP

done:
	MOVQ 56(BX), CX
	TESTQ $4, CX           // chain
	JNZ  child
	ADDQ $64, BX
	INCQ R15
	JMP  next

end:                           // no candidate was executed
	DECQ R15
	MOVQ BP, AX
	TESTQ AX, AX
	JNZ  fail
	MOVQ $2, AX            // ENOENT

fail:
	MOVQ R15, 0(R12)
	MOVQ AX, 8(R12)
	MOVQ $127, DI
	MOVQ $231, AX          // exit_group
	SYSCALL
	INT  $3
