/* Stand-ins for NVIDIA's driver libraries: they count STUB_GPUS devices, none of which can be used. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value ? atoi(value) : otherwise;
}

/* Which process asked what: one line each in the file STUB_LOG. */
static void note(const char *what) {
  const char *path = getenv("STUB_LOG");
  char line[128];
  int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
  if (fd < 0) return;
  int length = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), what);
  if (write(fd, line, length) < 0) {}
  close(fd);
}

/* NVML: 0 is success, 2 a bad argument. */
int nvmlInit(void) { note("nvmlInit"); return 0; }
int nvmlInit_v2(void) { note("nvmlInit"); return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STUB_GPUS", 0); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if ((int)index >= number("STUB_GPUS", 0)) return 2;
  *device = (void *)(long)(index + 1);
  return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-0000000%ld-0000-0000-0000-000000000000", (long)device - 1);
  return 0;
}

/* The driver: STUB_ERROR is what cuInit answers (100 is no device, 999 unknown), STUB_VERSION what it says it is. */
int cuInit(unsigned flags) { note("cuInit"); return number("STUB_ERROR", 100); }
int cuDriverGetVersion(int *version) { note("cuDriverGetVersion"); *version = number("STUB_VERSION", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = 0; return number("STUB_ERROR", 100); }
static int fails(void) { return number("STUB_ERROR", 100); }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, int *status) {
  void *mine = dlsym(RTLD_DEFAULT, name);
  if (!strcmp(name, "cuInit")) mine = (void *)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) mine = (void *)cuDriverGetVersion;
  if (!strcmp(name, "cuDeviceGetCount")) mine = (void *)cuDeviceGetCount;
  if (!strcmp(name, "cuGetProcAddress")) mine = (void *)cuGetProcAddress_v2;
  *found = mine ? mine : (void *)fails;
  if (status) *status = 0;
  return 0;
}
int cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, found, version, flags, NULL);
}
