/* libcuda.so.1 of the CPU driver: a jump table, and nothing of CUDA itself.
 *
 * Each exported cu* function is one indirect call through callbacks[n].  The driver, in Python,
 * fills that table with ctypes callbacks once it is loaded (library.py).  Before that, and from the
 * moment the interpreter exits, no call reaches Python.
 *
 * exports.inc is made from signatures.py: a line for each function,
 *     EXPORT(n, name, kind, (its parameters), (their names))
 * where kind is
 *     WORK      an ordinary function
 *     LAUNCH    one that may take long, and that must not be started twice
 *     CLEAN_UP  called from destructors
 *     TEXT      cuGetErrorString and cuGetErrorName: (int a, void *b)
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 3, UNKNOWN = 999 };

/* What a callback returns: a CUresult, marked as one.  A callback that was cut short (by Ctrl-C,
 * before its first line ran) leaves an arbitrary number without the mark. */
enum { CODE = 0x0000ffff, INTERRUPTED = 0x00010000, MARK = 0x2a000000, MARK_MASK = 0x7f000000 };

enum kind { WORK, LAUNCH, CLEAN_UP, TEXT };

struct ipc_handle { char bytes[64]; };

typedef void (*function)(void);

enum { COUNT = 0
#define EXPORT(n, name, kind, parameters, arguments) + 1
#include "exports.inc"
#undef EXPORT
};

static function callbacks[COUNT];
static volatile int awake;
static int asleep_code = NOT_INITIALIZED;
static const char *asleep_text = "the CPU driver is not loaded";

/* The few functions of the Python C API that a call needs; this library is not linked to Python. */
static struct {
    int (*gil_ensure)(void);
    void (*gil_release)(int);
    void (*fetch)(void **, void **, void **);
    void (*restore)(void *, void *, void *);
    int (*check_signals)(void);
    void (*clear)(void);
    void (*set_interrupt)(void);
} python;

/* One call on its way through Python. */
struct visit {
    int gil, result, interrupted, attempts, shielded;
    void *exception[3];
    struct sigaction handler;
};

/* Ctrl-C, while a call other than a launch is under way in the main thread, the only one whose
 * Python code it would interrupt: the driver's books must not be left half written. */
static volatile sig_atomic_t put_off;

static void put_off_interrupt(int number) {
    (void)number;
    put_off = 1;
}

static int in_main_thread(void) {
    static __thread int known; /* 0: not yet; 1: yes; 2: no */
    if (!known)
        known = syscall(SYS_gettid) == getpid() ? 1 : 2;
    return known == 1;
}

static void shield(struct visit *visit, enum kind kind) {
    struct sigaction ours = {.sa_handler = put_off_interrupt, .sa_flags = SA_RESTART};
    visit->shielded = kind != LAUNCH && in_main_thread() &&
                      sigaction(SIGINT, &ours, &visit->handler) == 0;
}

static void unshield(struct visit *visit) {
    if (!visit->shielded)
        return;
    sigaction(SIGINT, &visit->handler, NULL);
    visit->interrupted |= put_off;
    put_off = 0;
}

/* PyCUDA's destructors call the driver without minding that an exception may be under way (a real
 * driver would not notice): it is put aside, for Python code must not run in that state.  A Ctrl-C
 * that came before the call is put off until after it, like those that come during it. */
static void enter(struct visit *visit, enum kind kind) {
    visit->interrupted = visit->attempts = 0;
    visit->gil = python.gil_ensure();
    shield(visit, kind);
    python.fetch(&visit->exception[0], &visit->exception[1], &visit->exception[2]);
    if (python.check_signals() != 0) {
        python.clear();
        visit->interrupted = 1;
    }
}

/* Whether the callback was cut short, and has to be called again. */
static int again(struct visit *visit, enum kind kind) {
    if ((visit->result & MARK_MASK) == MARK) {
        visit->interrupted |= visit->result & INTERRUPTED;
        visit->result &= CODE;
        return 0;
    }
    visit->interrupted = 1;
    visit->result = kind == LAUNCH ? SUCCESS : UNKNOWN;
    return kind != LAUNCH && ++visit->attempts < 4;
}

/* The caller's next step in Python raises KeyboardInterrupt, if Ctrl-C came meanwhile. */
static int leave(struct visit *visit) {
    unshield(visit);
    if (visit->interrupted)
        python.set_interrupt();
    python.restore(visit->exception[0], visit->exception[1], visit->exception[2]);
    python.gil_release(visit->gil);
    return visit->result;
}

static int tell(void *text) {
    *(const char **)text = asleep_text;
    return SUCCESS;
}

#define ASLEEP_WORK asleep_code
#define ASLEEP_LAUNCH asleep_code
#define ASLEEP_CLEAN_UP SUCCESS
#define ASLEEP_TEXT tell(b)

#define EXPORT(n, name, kind, parameters, arguments)                 \
    int name parameters;                                             \
    int name parameters {                                            \
        struct visit visit;                                          \
        if (!awake)                                                  \
            return ASLEEP_##kind;                                    \
        enter(&visit, kind);                                         \
        do                                                           \
            visit.result = ((int (*) parameters)callbacks[n]) arguments; \
        while (again(&visit, kind));                                 \
        return leave(&visit);                                        \
    }
#include "exports.inc"
#undef EXPORT

/* ---------------------------------------------------------------- for library.py */

/* Calls go to these callbacks, COUNT of them, from now on.  `api`: the functions in `python`. */
void cpu_driver_wake(const function *api, const function *table);
void cpu_driver_wake(const function *api, const function *table) {
    python.gil_ensure = (int (*)(void))api[0];
    python.gil_release = (void (*)(int))api[1];
    python.fetch = (void (*)(void **, void **, void **))api[2];
    python.restore = (void (*)(void *, void *, void *))api[3];
    python.check_signals = (int (*)(void))api[4];
    python.clear = (void (*)(void))api[5];
    python.set_interrupt = (void (*)(void))api[6];
    for (int n = 0; n < COUNT; n++)
        callbacks[n] = table[n];
    awake = 1;
}

/* No call goes to Python any more: clean-up succeeds, the rest returns `code`, whose text is
 * `text` (which must stay where it is). */
void cpu_driver_sleep(int code, const char *text);
void cpu_driver_sleep(int code, const char *text) {
    asleep_code = code;
    asleep_text = text;
    awake = 0;
}
