/* model.bin as data of a program. */
#if defined(__APPLE__)
#define NAME(name) _##name
    .section __DATA,__const
#else
#define NAME(name) name
    .section .rodata
#endif
    .p2align 6
    .globl NAME(elman_data)
NAME(elman_data):
    .incbin "model.bin"
    .globl NAME(elman_data_end)
NAME(elman_data_end):
#if defined(__linux__) && defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
