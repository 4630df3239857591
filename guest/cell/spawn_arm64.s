#include "textflag.h"

// func spawn(args unsafe.Pointer, size uintptr, head unsafe.Pointer) int
//
// The kernel keeps every register but R0 over a system call. R19 is the header,
// R20 the next call, R21 the count, R22 the index, R23 the remembered errno.
TEXT ·spawn(SB), NOSPLIT|NOFRAME, $0-32
	MOVD args+0(FP), R0
	MOVD size+8(FP), R1
	MOVD head+16(FP), R19
	MOVD $435, R8          // clone3
	SVC
	CBZ  R0, child
	MOVD R0, ret+24(FP)
	RET

child:
	MOVD 16(R19), R20
	MOVD 0(R20), R21
	ADD  $8, R20
	MOVD $0, R22
	MOVD $0, R23

next:
	CMP  R21, R22
	BHS  end
	MOVD 0(R20), R8
	MOVD 8(R20), R0
	MOVD 16(R20), R1
	MOVD 24(R20), R2
	MOVD 32(R20), R3
	MOVD 40(R20), R4
	MOVD 48(R20), R5
	SVC
	CMN  $4095, R0
	BLO  done
	NEG  R0, R0
	MOVD 56(R20), R24
	TBNZ $0, R24, done     // mayFail
	TBZ  $1, R24, fail     // candidate
	CMP  $2, R0            // ENOENT
	BEQ  done
	CMP  $20, R0           // ENOTDIR
	BEQ  done
	MOVD R0, R23

done:
	MOVD 56(R20), R24
	TBNZ $2, R24, child    // chain
	ADD  $64, R20
	ADD  $1, R22
	B    next

end:                           // no candidate was executed
	SUB  $1, R22
	MOVD R23, R0
	CBNZ R0, fail
	MOVD $2, R0            // ENOENT

fail:
	MOVD R22, 0(R19)
	MOVD R0, 8(R19)
	MOVD $127, R0
	MOVD $94, R8           // exit_group
	SVC
	BRK
