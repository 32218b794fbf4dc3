/* NVML for machines without a GPU: answers what vLLM and torch ask before a kernel runs.
 *
 * STUB_NVML_COUNT, _NAME, _MEMORY_MIB, _CAPABILITY (MAJOR.MINOR) describe the devices; all are connected by NVLink.
 * Types and result codes are those of nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef void *nvmlDevice_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "stub NVML: %s is not set\n", name);
        abort();
    }
    return value;
}

static unsigned int count(void) { return (unsigned int)strtoul(setting("STUB_NVML_COUNT"), NULL, 10); }
static unsigned long long memory(void) { return strtoull(setting("STUB_NVML_MEMORY_MIB"), NULL, 10) << 20; }
static unsigned int index_of(nvmlDevice_t device) { return (unsigned int)(size_t)device - 1; }

static int text(char *into, unsigned int length, const char *value)
{
    return snprintf(into, length, "%s", value) < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlInit(void) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int result) { (void)result; return "stub NVML"; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) { return text(version, length, "580.00.00"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return SUCCESS; }

int nvmlDeviceGetCount(unsigned int *devices) { *devices = count(); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *devices) { return nvmlDeviceGetCount(devices); }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    if (index >= count())
        return INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(size_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) { *index = index_of(device); return SUCCESS; }
int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    (void)device;
    return text(name, length, setting("STUB_NVML_NAME"));
}

int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char own[64];
    snprintf(own, sizeof own, "GPU-00000000-0000-0000-0000-%012u", index_of(device));
    return text(uuid, length, own);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    unsigned int index;
    if (sscanf(uuid, "GPU-00000000-0000-0000-0000-%u", &index) != 1)
        return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    (void)device;
    return sscanf(setting("STUB_NVML_CAPABILITY"), "%d.%d", major, minor) == 2 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    (void)device;
    *info = (nvmlMemory_t){memory(), memory(), 0};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    (void)device;
    *info = (nvmlMemory_v2_t){info->version, memory(), 0, memory(), 0};
    return SUCCESS;
}

int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    (void)device;
    *current = *pending = 0;
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second, int capability, int *status)
{
    (void)first, (void)second, (void)capability;
    *status = 0;
    return SUCCESS;
}
