/* libcuda.so.1 of the CPU driver: a jump table, and nothing of CUDA itself.
 *
 * Each exported cu* function is one indirect jump through jump_table[n].  The driver, in Python,
 * fills the table with ctypes callbacks once it is loaded (library.py).  Before that, and from the
 * moment the interpreter exits, the table holds the small C functions below, so that a late call
 * never reaches Python.
 *
 * symbols.inc is made from signatures.py: a line SYMBOL(n, name, kind) for each function, with
 *   kind WORK      an ordinary function
 *        CLEAN_UP  called from destructors; takes at most two arguments, none of them floating
 *        TEXT      cuGetErrorString and cuGetErrorName
 */

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the CPU driver's jump table is written for x86-64 and aarch64"
#endif

enum { SUCCESS = 0, NOT_INITIALIZED = 3 };

#define HIDDEN __attribute__((visibility("hidden"), used))

/* ------------------------------------------------ without Python ------------------------------ */

static int asleep_code = NOT_INITIALIZED;
static const char *asleep_text = "the CPU driver is not loaded";

static int asleep_WORK(void *a, void *b) {
    (void)a, (void)b;
    return asleep_code;
}

static int asleep_CLEAN_UP(void *a, void *b) {
    (void)a, (void)b;
    return SUCCESS;
}

static int asleep_TEXT(void *code, void *text) {
    (void)code;
    *(const char **)text = asleep_text;
    return SUCCESS;
}

typedef int (*function)(void *, void *);

#define SYMBOL(n, name, kind) [n] = asleep_##kind,
static const function asleep[] = {
#include "symbols.inc"
};
HIDDEN function jump_table[] = {
#include "symbols.inc"
};
#undef SYMBOL

enum { COUNT = sizeof jump_table / sizeof *jump_table };

/* ------------------------------------------------ with Python --------------------------------- */

/* PyCUDA's destructors call the driver without minding that an exception may be under way (a real
 * driver would not notice).  Python code must not run in that state: put the exception aside. */
static struct {
    int (*gil_ensure)(void);
    void (*gil_release)(int);
    void (*fetch)(void **, void **, void **);
    void (*restore)(void *, void *, void *);
} python;

static function callbacks[COUNT];

static int with_exception_aside(int n, void *a, void *b) {
    void *type, *value, *traceback;
    int gil = python.gil_ensure();
    python.fetch(&type, &value, &traceback);
    int result = callbacks[n](a, b);
    python.restore(type, value, traceback);
    python.gil_release(gil);
    return result;
}

#define ASIDE_WORK(n, name)
#define ASIDE_CLEAN_UP(n, name) \
    static int aside_##name(void *a, void *b) { return with_exception_aside(n, a, b); }
#define ASIDE_TEXT ASIDE_CLEAN_UP
#define SYMBOL(n, name, kind) ASIDE_##kind(n, name)
#include "symbols.inc"
#undef SYMBOL

#define ENTRY_WORK(n, name) [n] = 0,
#define ENTRY_CLEAN_UP(n, name) [n] = aside_##name,
#define ENTRY_TEXT ENTRY_CLEAN_UP
#define SYMBOL(n, name, kind) ENTRY_##kind(n, name)
static const function aside[] = {
#include "symbols.inc"
};
#undef SYMBOL

void cpu_driver_python(void *gil_ensure, void *gil_release, void *fetch, void *restore) {
    python.gil_ensure = (int (*)(void))gil_ensure;
    python.gil_release = (void (*)(int))gil_release;
    python.fetch = (void (*)(void **, void **, void **))fetch;
    python.restore = (void (*)(void *, void *, void *))restore;
}

/* Calls of function n go to `callback` from now on. */
void cpu_driver_fill(int n, void *callback) {
    callbacks[n] = (function)callback;
    jump_table[n] = aside[n] ? aside[n] : callbacks[n];
}

/* No call goes to Python any more: clean-up succeeds, the rest returns `code`, whose text is
 * `text` (which must stay where it is). */
void cpu_driver_sleep(int code, const char *text) {
    asleep_code = code;
    asleep_text = text;
    for (int n = 0; n < COUNT; n++)
        jump_table[n] = asleep[n];
}

/* ------------------------------------------------ the exported functions ---------------------- */

#if defined(__x86_64__)
#define JUMP(n) "endbr64\n\tjmp *jump_table+8*" #n "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(n)                                    \
    "hint #34\n\t"                                 \
    "adrp x16, jump_table+8*" #n "\n\t"            \
    "ldr x16, [x16, #:lo12:jump_table+8*" #n "]\n\t" \
    "br x16\n"
#endif

#define SYMBOL(n, name, kind)               \
    __asm__(".text\n"                       \
            ".balign 16\n"                  \
            ".globl " #name "\n"            \
            ".type " #name ", %function\n"  \
            #name ":\n\t" JUMP(n)           \
            ".size " #name ", .-" #name "\n");
#include "symbols.inc"
