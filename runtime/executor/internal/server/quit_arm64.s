#include "textflag.h"

// func quit()
//
// A signal handler: the siginfo_t is in R1. It has si_code at 8 and si_pid at 16.
TEXT ·quit(SB),NOSPLIT|NOFRAME,$0-0
	MOVWU	8(R1), R3
	CBNZW	R3, drop // not SI_USER
	MOVWU	16(R1), R3
	CMPW	$1, R3
	BHI	drop
	MOVD	·quitNext(SB), R3
	JMP	(R3)
drop:
	RET

// func quitPC() uintptr
TEXT ·quitPC(SB),NOSPLIT,$0-8
	MOVD	$·quit(SB), R3
	MOVD	R3, ret+0(FP)
	RET
