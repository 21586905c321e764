/* Counts what torch's CPU allocator takes, in every thread: preloaded, it stands before posix_memalign and free.
   Blocks under LEAST bytes are left out: others call posix_memalign for small ones too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define LEAST 64
#define SLOTS (1u << 20)

static struct { void *place; size_t size; } table[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long long now, peak;
static int (*real_posix_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);

static void __attribute__((constructor)) start(void) {
    real_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

static unsigned slot_of(const void *place) { return (unsigned)(((uintptr_t)place >> 6) * 2654435761u) % SLOTS; }

int posix_memalign(void **place, size_t alignment, size_t size) {
    if (!real_posix_memalign) start();
    int code = real_posix_memalign(place, alignment, size);
    if (code || size < LEAST) return code;
    pthread_mutex_lock(&lock);
    unsigned slot = slot_of(*place);
    while (table[slot].place && table[slot].size) slot = (slot + 1) % SLOTS;
    table[slot].place = *place;
    table[slot].size = size;
    now += (long long)size;
    if (now > peak) peak = now;
    pthread_mutex_unlock(&lock);
    return 0;
}

void free(void *place) {
    if (!real_free) start();
    if (place && ((uintptr_t)place & 63) == 0) {
        pthread_mutex_lock(&lock);
        /* A slot whose block is gone keeps its place, so that those behind it are still found. */
        for (unsigned slot = slot_of(place); table[slot].place; slot = (slot + 1) % SLOTS)
            if (table[slot].place == place && table[slot].size) {
                now -= (long long)table[slot].size;
                table[slot].size = 0;
                break;
            }
        pthread_mutex_unlock(&lock);
    }
    real_free(place);
}

long long allocations_now(void) { return now; }
long long allocations_peak(void) { return peak; }
void allocations_reset(void) { peak = now; }
