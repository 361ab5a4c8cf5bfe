#include "textflag.h"

// func quit()
//
// A signal handler: the siginfo_t is in SI. It has si_code at 8 and si_pid at 16.
TEXT ·quit(SB),NOSPLIT|NOFRAME,$0-0
	MOVL	8(SI), AX
	CMPL	AX, $0 // SI_USER
	JNE	drop
	MOVL	16(SI), AX
	CMPL	AX, $1
	JHI	drop
	MOVQ	·quitNext(SB), AX
	JMP	AX
drop:
	RET

// func quitPC() uintptr
TEXT ·quitPC(SB),NOSPLIT,$0-8
	LEAQ	·quit(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
