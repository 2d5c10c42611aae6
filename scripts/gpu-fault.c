// Breaks the CUDA context of the program that it is preloaded into (LD_PRELOAD), as a faulty kernel
// would: whenever the file named by GPU_FAULT appears, it is removed and a kernel that traps runs on
// device 0. Every later call on that context fails until the program has given it up.
//
// cc -shared -fPIC -O1 -o gpu-fault.so gpu-fault.c -ldl -lpthread
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const TRAP =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry fault() { trap; }\n";

// Calls a function of the driver by its exported name.
#define CALL(name, types, ...) call(name, ((int (*) types)dlsym(driver, name))(__VA_ARGS__))

static void call(const char *name, int status) {
    fprintf(stderr, "gpu-fault: %s gave %d\n", name, status);
}

static void fault(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "gpu-fault: no driver\n");
        return;
    }
    void *context = NULL, *module = NULL, *kernel = NULL;
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, 0);
    CALL("cuCtxPushCurrent_v2", (void *), context);
    CALL("cuModuleLoadData", (void **, const void *), &module, TRAP);
    CALL("cuModuleGetFunction", (void **, void *, const char *), &kernel, module, "fault");
    CALL("cuLaunchKernel",
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    CALL("cuCtxSynchronize", (void), );
    CALL("cuCtxPopCurrent_v2", (void **), &context);
    CALL("cuDevicePrimaryCtxRelease_v2", (int), 0);
}

static void *watch(void *path) {
    for (;; usleep(2 * 1000))
        if (unlink(path) == 0) fault();
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    char *path = getenv("GPU_FAULT");
    if (path != NULL && pthread_create(&thread, NULL, watch, path) == 0) pthread_detach(thread);
}
