/* A driver's library that answers like NVML on an idle node of H200s. What is planted stands in
 * the environment: NVML_<what> for all GPUs, NVML_<what>_<index> for one. NVML_refuse has functions
 * and the codes by which they refuse: "Name:3" is nvmlDeviceGetName; "*" is every question about a GPU
 * but for its UUID, and what NVML_answer names is answered all the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16 };
enum {
  UNINITIALIZED = 1, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, TIMEOUT = 10, LOST = 15, MISMATCH = 25
};
struct gpu { int index; };
static struct gpu gpus[MOST], slices[MOST]; /* the slices are of MIG */

static unsigned planted(const char *what, const struct gpu *gpu, unsigned normal) {
  char name[64];
  if (gpu) {
    snprintf(name, sizeof name, "NVML_%s_%d", what, gpu->index);
    if (getenv(name)) return atoi(getenv(name));
  }
  snprintf(name, sizeof name, "NVML_%s", what);
  return getenv(name) ? atoi(getenv(name)) : normal;
}

unsigned readings[MOST]; /* of each GPU's SM clock, since the driver was taken up */
unsigned refusals[MOST]; /* of the same, once the GPU is lost */
static unsigned initialized;

/* A GPU is gone from the start, or once its clock was read so often. */
static int lost(const struct gpu *gpu) {
  unsigned after = planted("lost_after", gpu, 0);
  return planted("lost", gpu, 0) || (after && readings[gpu->index] >= after);
}

static const char *words(const char *what, const struct gpu *gpu, const char *normal) {
  char name[64];
  snprintf(name, sizeof name, "NVML_%s_%d", what, gpu->index);
  if (getenv(name)) return getenv(name);
  snprintf(name, sizeof name, "NVML_%s", what);
  return getenv(name) ? getenv(name) : normal;
}

static int refusal(const char *function, const struct gpu *gpu) {
  char name[96];
  if (lost(gpu)) return LOST;
  const char *refused = getenv("NVML_refuse"), *answered = getenv("NVML_answer");
  if (!strncmp(function, "nvmlDeviceGet", 13)) function += 13;
  snprintf(name, sizeof name, "%s:", function);
  const char *place = refused ? strstr(refused, name) : 0;
  if (place) return atoi(place + strlen(name));
  place = refused ? strstr(refused, "*:") : 0;
  return !place || (answered && strstr(answered, function)) ? 0 : atoi(place + 2);
}
#define REFUSE(gpu)                                          \
  do {                                                       \
    int refused = refusal(__func__, gpu);                    \
    if (refused) return refused;                             \
  } while (0)

#define NUMBER(function, what, normal)                     \
  int function(struct gpu *gpu, unsigned *answer) {        \
    REFUSE(gpu);                                             \
    *answer = planted(what, gpu, normal);                  \
    return 0;                                              \
  }
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation", 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width", 16)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width", 16)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_cap", 700000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_default", 700000)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence", 1)
NUMBER(nvmlDeviceGetBrand, "brand", 14) /* as GPUs of data centres answer */
NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization", 0)

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *room, void *infos) {
  REFUSE(gpu);
  unsigned count = planted("users", gpu, 0), fits = *room >= count;
  (void)infos; /* their numbers stay 0 */
  *room = count;
  return fits ? 0 : INSUFFICIENT_SIZE;
}

static unsigned asked_replays[MOST], asked_recoveries[MOST];
int nvmlDeviceGetPcieReplayCounter(struct gpu *gpu, unsigned *count) {
  REFUSE(gpu);
  *count = 40 + (asked_replays[gpu->index]++ ? planted("pcie_replays", gpu, 0) : 0);
  return 0;
}
void forget(void) { /* what was counted, for the next test of this process */
  memset(readings, 0, sizeof readings);
  memset(refusals, 0, sizeof refusals);
  memset(asked_replays, 0, sizeof asked_replays);
  memset(asked_recoveries, 0, sizeof asked_recoveries);
}
int nvmlInitWithFlags(unsigned flags) {
  sleep(planted("hang", 0, 0));
  initialized = 1;
  return planted("init", 0, 0);
}
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strncpy(text, "12.570.86", size); return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "570.86.15", size); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12080; return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = planted("count", 0, 4); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
  *gpu = gpus + index;
  (*gpu)->index = index;
  return planted("handle", *gpu, 0);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu) {
  const char *kind = planted("mig", 0, 0) ? "MIG-" : "GPU-";
  unsigned index;
  if (!initialized) return UNINITIALIZED;
  if (strncmp(uuid, kind, 4) || sscanf(uuid + 4, "%u", &index) != 1) return NOT_FOUND;
  *gpu = gpus + index;
  (*gpu)->index = index;
  return index < planted("count", 0, 4) ? 0 : NOT_FOUND;
}
int nvmlDeviceGetUUID(struct gpu *gpu, char *uuid, unsigned size) {
  snprintf(uuid, size, gpu->index < 100 ? "GPU-%d" : "MIG-%d", gpu->index % 100);
  return gpu->index < 100 && lost(gpu) ? LOST : 0;
}
int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *now, unsigned *pending) {
  REFUSE(gpu);
  *now = *pending = planted("mig", gpu, 0);
  return 0;
}
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "most_slices", 7)
int nvmlDeviceGetMigDeviceHandleByIndex(struct gpu *gpu, unsigned place, struct gpu **slice) {
  REFUSE(gpu);
  *slice = slices + gpu->index;
  (*slice)->index = 100 + gpu->index;
  return place < planted("slices", gpu, 1) ? 0 : NOT_FOUND;
}
/* Of CUDA's own driver: what tells where on the PCI bus a GPU that a process sees lies. */
int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int index) {
  const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
  *device = index;
  return chosen && sscanf(chosen, "%*[GMUPI]-%d", device) != 1 && sscanf(chosen, "%d", device) != 1;
}
int cuDeviceGetPCIBusId(char *address, int size, int device) {
  snprintf(address, size, "0000:%02X:00.0", 0x1b + 0x20 * device);
  return 0;
}
int nvmlDeviceGetName(struct gpu *gpu, char *text, unsigned size) {
  REFUSE(gpu);
  strncpy(text, words("name", gpu, "NVIDIA H200"), size);
  return 0;
}
int nvmlDeviceGetVbiosVersion(struct gpu *gpu, char *text, unsigned size) {
  REFUSE(gpu);
  strncpy(text, words("vbios", gpu, "96.00.BC.00.01"), size);
  return planted("no_vbios", gpu, 0) ? NOT_SUPPORTED : 0;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
int nvmlDeviceGetPciInfo_v3(struct gpu *gpu, struct pci *pci) {
  REFUSE(gpu);
  memset(pci, 0, sizeof *pci);
  pci->bus = 0x1b + 0x20 * gpu->index;
  return 0;
}
int nvmlDeviceGetMemoryInfo(struct gpu *gpu, unsigned long long memory[3]) {
  REFUSE(gpu);
  memory[0] = 1000000000ull * planted("memory", gpu, 150);
  memory[2] = planted("used_mib", gpu, 0) ? (unsigned long long)planted("used_mib", gpu, 0) << 20 : memory[0] / 2;
  memory[1] = memory[0] - memory[2];
  return 0;
}
/* Does not come back once the SM clock was read so often, where that is planted. */
int nvmlDeviceGetUtilizationRates(struct gpu *gpu, unsigned share[2]) {
  REFUSE(gpu);
  unsigned after = planted("hang_after", gpu, 0);
  if (after && readings[gpu->index] >= after) sleep(3600);
  share[0] = planted("duty", gpu, 0);
  share[1] = 0;
  return 0;
}
int nvmlDeviceGetPcieThroughput(struct gpu *gpu, int received, unsigned *kb) {
  REFUSE(gpu);
  *kb = planted(received ? "pcie_rx" : "pcie_tx", gpu, 0);
  return 0;
}
struct field { unsigned id, scope; long long at, latency; int type, answer; unsigned long long value; };
/* By NVML_field<number>; the rest is not supported. What NVLink has carried is in KiB. */
int nvmlDeviceGetFieldValues(struct gpu *gpu, int count, struct field *fields) {
  REFUSE(gpu);
  for (int i = 0; i < count; i++) {
    char name[16];
    snprintf(name, sizeof name, "field%u", fields[i].id);
    const char *what = fields[i].id == 138 ? "nvlink_tx" : fields[i].id == 139 ? "nvlink_rx" : name;
    enum { ABSENT = 999999999 };
    unsigned value = planted(what, gpu, ABSENT);
    fields[i].value = value;
    fields[i].type = 3; /* unsigned long long */
    fields[i].answer = value == ABSENT ? NOT_SUPPORTED : 0;
  }
  return 0;
}
struct support { unsigned version, supported; };
int nvmlGpmQueryDeviceSupport(struct gpu *gpu, struct support *support) {
  REFUSE(gpu);
  support->supported = planted("gpm", gpu, 1);
  return 0;
}
int nvmlGpmSampleAlloc(struct gpu ***sample) { *sample = calloc(1, sizeof **sample); return 0; }
int nvmlGpmSampleGet(struct gpu *gpu, struct gpu **sample) {
  REFUSE(gpu);
  *sample = gpu;
  return 0;
}
struct gpm { unsigned id; int answer; double value; const char *words[3]; };
struct gpms { unsigned version, count; struct gpu **first, **second; struct gpm metrics[]; };
int nvmlGpmMetricsGet(struct gpms *question) {
  if (question->version != 1 || *question->first != *question->second) return INVALID_ARGUMENT;
  for (unsigned i = 0; i < question->count; i++) {
    char name[16];
    snprintf(name, sizeof name, "gpm%u", question->metrics[i].id);
    unsigned value = planted(name, *question->first, 9999);
    question->metrics[i].answer = value == 9999 ? NOT_SUPPORTED : 0;
    question->metrics[i].value = value;
  }
  return 0;
}
int nvmlDeviceGetTotalEccErrors(struct gpu *gpu, int uncorrected, int ever, unsigned long long *count) {
  REFUSE(gpu);
  const char *what = uncorrected ? "ecc_uncorrected" : "ecc_corrected";
  char name[64];
  snprintf(name, sizeof name, "%s_%s", what, ever ? "ever" : "now");
  *count = planted(name, gpu, ever && !uncorrected ? 7 : 0);
  return 0;
}
int nvmlDeviceGetEccMode(struct gpu *gpu, unsigned *now, unsigned *pending) {
  REFUSE(gpu);
  *now = *pending = planted("ecc_mode", gpu, 1);
  return 0;
}
int nvmlDeviceGetRemappedRows(
    struct gpu *gpu, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failure) {
  REFUSE(gpu);
  *correctable = planted("rows_correctable", gpu, 1);
  *uncorrectable = planted("rows_uncorrectable", gpu, 0);
  *pending = planted("pending", gpu, 0);
  *failure = planted("failure", gpu, 0);
  return 0;
}
int nvmlDeviceGetRetiredPages(struct gpu *gpu, int cause, unsigned *count, unsigned long long *pages) {
  REFUSE(gpu);
  if (!planted("retires_pages", gpu, 0)) return NOT_SUPPORTED;
  unsigned room = *count;
  *count = cause ? 2 : 40;
  return pages && room >= *count ? 0 : INSUFFICIENT_SIZE;
}
int nvmlDeviceGetRetiredPagesPendingStatus(struct gpu *gpu, unsigned *pending) { return NOT_SUPPORTED; }
struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(struct gpu *gpu, struct sram *status) {
  REFUSE(gpu);
  if (status->version != 0x1000068) return MISMATCH; /* nvmlEccSramErrorStatus_v1 of nvml.h */
  status->exceeded = planted("sram", gpu, 0);
  return 0;
}
struct margin { unsigned version; int celsius; };
int nvmlDeviceGetMarginTemperature(struct gpu *gpu, struct margin *margin) {
  REFUSE(gpu);
  if (margin->version != 0x1000008) return MISMATCH; /* nvmlMarginTemperature_v1 of nvml.h */
  margin->celsius = planted("margin", gpu, 0);
  return margin->celsius ? 0 : NOT_SUPPORTED;
}
int nvmlDeviceGetTemperatureThreshold(struct gpu *gpu, int which, unsigned *celsius) {
  REFUSE(gpu);
  if (which != 1) return INVALID_ARGUMENT;
  *celsius = planted("slows_down_at", gpu, 92);
  return 0;
}
int nvmlDeviceGetTemperature(struct gpu *gpu, int sensor, unsigned *celsius) {
  REFUSE(gpu);
  *celsius = planted("celsius", gpu, 31);
  return sensor ? INVALID_ARGUMENT : 0;
}
struct temperature { unsigned version; int sensor, celsius; };
int nvmlDeviceGetTemperatureV(struct gpu *gpu, struct temperature *temperature) {
  REFUSE(gpu);
  if (temperature->version != 0x100000C) return MISMATCH; /* nvmlTemperature_v1 of nvml.h */
  temperature->celsius = planted("celsius", gpu, 31);
  return temperature->sensor ? INVALID_ARGUMENT : 0;
}
int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *mw) {
  REFUSE(gpu);
  *mw = planted("power", gpu, 70000);
  return planted("no_power", gpu, 0) ? NOT_SUPPORTED : 0;
}
/* Every third reading of the SM clock shows a dip, where one is planted. */
int nvmlDeviceGetClockInfo(struct gpu *gpu, int which, unsigned *mhz) {
  if (which == 1 && lost(gpu)) ++refusals[gpu->index];
  REFUSE(gpu);
  if (which != 1 && which != 2) return INVALID_ARGUMENT;
  *mhz = which == 2 ? 2619 : planted("sm_now", gpu, 345);
  if (which == 1 && ++readings[gpu->index] % 3 == 0) *mhz = planted("sm_dip", gpu, *mhz);
  return 0;
}
/* Clocks for applications outlive a process, as a driver's do: in the folder NVML_clocks. */
static FILE *clocks_of(struct gpu *gpu, const char *how) {
  char name[256];
  if (!getenv("NVML_clocks")) return 0;
  snprintf(name, sizeof name, "%s/%d", getenv("NVML_clocks"), gpu->index);
  return fopen(name, how);
}
int nvmlDeviceGetApplicationsClock(struct gpu *gpu, int which, unsigned *mhz) {
  REFUSE(gpu);
  unsigned memory = 2619, processors = 1980;
  FILE *file = clocks_of(gpu, "r");
  if (file && fscanf(file, "%u %u", &memory, &processors) != 2) memory = 0;
  if (file) fclose(file);
  *mhz = which == 2 ? memory : processors;
  return 0;
}
int nvmlDeviceSetApplicationsClocks(struct gpu *gpu, unsigned memory, unsigned processors) {
  REFUSE(gpu);
  FILE *file = clocks_of(gpu, "w");
  if (!file) return NOT_SUPPORTED;
  fprintf(file, "%u %u", memory, processors);
  return fclose(file) ? 999 : 0;
}
int nvmlDeviceGetSupportedGraphicsClocks(struct gpu *gpu, unsigned memory, unsigned *room, unsigned *mhz) {
  REFUSE(gpu);
  enum { LOWEST = 345, STEP = 15, COUNT = (1980 - LOWEST) / STEP + 1 };
  unsigned fits = *room >= COUNT;
  *room = COUNT;
  for (unsigned i = 0; fits && i < COUNT; i++) mhz[i] = LOWEST + STEP * (COUNT - 1 - i);
  return memory != 2619 ? NOT_FOUND : fits ? 0 : INSUFFICIENT_SIZE;
}
int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, int which, unsigned *mhz) {
  REFUSE(gpu);
  if (which != 1 && which != 2) return INVALID_ARGUMENT;
  *mhz = which == 1 ? planted("sm_clock", gpu, 1980) : 3201;
  return 0;
}
static int held_back(struct gpu *gpu, unsigned long long *why) {
  *why = planted("throttle", gpu, 0x1);
  return planted("no_throttle", gpu, 0) ? NOT_SUPPORTED : 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *why) {
  REFUSE(gpu);
  return held_back(gpu, why);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *gpu, unsigned long long *why) {
  REFUSE(gpu);
  return held_back(gpu, why);
}
/* Each planted XID is an event once, of GPUs that somebody listens to. */
struct event { struct gpu *gpu; unsigned long long type, data; unsigned slice, part; };
static unsigned listened[MOST], told_xids[MOST];
int nvmlEventSetCreate(void **set) { *set = memset(listened, 0, sizeof listened); return 0; }
int nvmlEventSetFree(void *set) { memset(set, 0, sizeof listened); return 0; }
int nvmlDeviceRegisterEvents(struct gpu *gpu, unsigned long long types, unsigned *set) {
  REFUSE(gpu);
  if (planted("no_xids", gpu, 0)) return NOT_SUPPORTED;
  set[gpu->index] = types == 8;
  return 0;
}
int nvmlEventSetWait_v2(unsigned *set, struct event *event, unsigned ms) {
  for (unsigned index = 0; index < MOST; index++) {
    unsigned xid = set[index] ? planted("xid", gpus + index, 0) : 0;
    if (xid == told_xids[index]) continue;
    told_xids[index] = xid;
    if (!xid) continue;
    *event = (struct event){gpus + index, 8, xid, 0, 0};
    return 0;
  }
  return TIMEOUT;
}
int nvmlDeviceGetNvLinkState(struct gpu *gpu, unsigned link, unsigned *up) {
  REFUSE(gpu);
  if (link >= planted("links", gpu, 18)) return link ? INVALID_ARGUMENT : NOT_SUPPORTED;
  *up = link >= planted("links_down", gpu, 0);
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(struct gpu *gpu, unsigned link, unsigned *kind) {
  REFUSE(gpu);
  *kind = planted("far_end", gpu, 2); /* a switch; 0 is a GPU */
  return link < planted("links_down", gpu, 0) ? INVALID_ARGUMENT : 0;
}
int nvmlDeviceGetC2cModeInfoV(struct gpu *gpu, unsigned *enabled) {
  REFUSE(gpu);
  *enabled = planted("c2c", gpu, 0);
  return 0;
}
int nvmlDeviceGetNvLinkErrorCounter(struct gpu *gpu, unsigned link, int counter, unsigned long long *count) {
  REFUSE(gpu);
  if (planted("no_nvlink_counter", gpu, 9) == counter) return NOT_SUPPORTED;
  *count = 1000;
  if (link == 17 && counter == 1 && asked_recoveries[gpu->index]++) *count += planted("recoveries", gpu, 0);
  return 0;
}
struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
struct fabric_now { unsigned version; struct fabric before; unsigned mask; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(struct gpu *gpu, struct fabric_now *fabric) {
  REFUSE(gpu);
  if (fabric->version != 0x3000028) return MISMATCH; /* nvmlGpuFabricInfo_v3 of nvml.h */
  if (planted("old_fabric", gpu, 0)) return MISMATCH;
  memset(&fabric->before, 0, sizeof fabric->before);
  fabric->before.cluster[15] = planted("cluster", gpu, 0);
  fabric->before.clique = planted("clique", gpu, 0);
  fabric->before.status = planted("fabric_status", gpu, 0);
  fabric->before.state = planted("fabric", gpu, 3);
  fabric->mask = planted("fabric_mask", gpu, 0);
  fabric->summary = planted("fabric_summary", gpu, 0);
  return 0;
}
int nvmlDeviceGetGpuFabricInfo(struct gpu *gpu, struct fabric *fabric) {
  REFUSE(gpu);
  fabric->status = planted("fabric_status", gpu, 0);
  fabric->state = planted("fabric", gpu, 3);
  return 0;
}
