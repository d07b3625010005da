/* Creating, finding and leaving the shared segment of a communicator.
 *
 * The segment is an anonymous file (memfd) that the other ranks open through /proc/<pid>/fd/<n> of its creator, so nothing is left behind however the ranks end. Where
 * there is no memfd it is a POSIX shared memory object, which loses its name when the last rank has attached. Owner, size and nonce are checked before it is used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "comm/peers.h"
#include "comm/segment.h"

#define MAGIC 0x746e78636f6d6d31ull /* "tnxcomm1" */

typedef struct handle {
  uint64_t magic, bytes, nonce;
  int32_t pid, fd;
  uint32_t size;
  char shm_name[TNX_COMM_NAME_BYTES]; /* "": through fd */
} handle;
_Static_assert(sizeof(handle) <= TNX_COMM_HANDLE_BYTES, "a handle fits its buffer");

static size_t align_up(size_t n) { return (n + 4095) & ~(size_t)4095; }

static size_t segment_bytes(int size) {
  size_t n = (size_t)size;
  return align_up(sizeof(tnx_segment)) + align_up(n * sizeof(tnx_peer)) + n * TNX_COMM_BUFFERS * TNX_COMM_CHUNK + align_up(n * n * sizeof(tnx_channel));
}

static void place(tnx_comm *c, void *base) {
  size_t n = (size_t)c->size;
  unsigned char *p = base;
  c->segment = base;
  p += align_up(sizeof(tnx_segment));
  c->peers = (tnx_peer *)p;
  p += align_up(n * sizeof(tnx_peer));
  c->slots = p;
  p += n * TNX_COMM_BUFFERS * TNX_COMM_CHUNK;
  c->channels = (tnx_channel *)p;
}

static tnx_status new_comm(int rank, int size, const char *name, tnx_comm **out) {
  if (size < 1 || size > TNX_COMM_MAX_RANKS) return tnx_fail(TNX_INVALID_ARGUMENT, "a communicator has 1 to %d ranks, not %d", TNX_COMM_MAX_RANKS, size);
  if (rank < 0 || rank >= size) return tnx_fail(TNX_INVALID_ARGUMENT, "rank %d is not in [0, %d)", rank, size);
  tnx_comm *c = tnx_heap_zalloc(1, sizeof *c);
  if (!c) return tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for a communicator");
  c->rank = rank;
  c->size = size;
  c->fd = -1;
  c->owner = true;
  c->bytes = segment_bytes(size);
  c->isa = tnx_cpu_isa();
  snprintf(c->name, sizeof c->name, "%s", name ? name : "");
  pthread_mutex_init(&c->turn_lock, NULL);
  pthread_cond_init(&c->turn_changed, NULL);
  *out = c;
  return TNX_OK;
}

static void enter(tnx_comm *c) {
  tnx_peer *me = &c->peers[c->rank];
  me->pid = (int32_t)getpid();
  me->start_time = tnx_process_start_time(getpid());
  atomic_store(&me->state, TNX_PEER_ATTACHED);
  for (int p = 0; p < c->size; p++)
    if (p != c->rank) tnx_peer_wake(&c->peers[p]);
}

static tnx_status map(tnx_comm *c) {
  void *base = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
  if (base == MAP_FAILED) return tnx_fail(TNX_OUT_OF_MEMORY, "the shared segment of %zu bytes of group \"%s\" could not be mapped: %s", c->bytes, c->name, strerror(errno));
  madvise(base, c->bytes, MADV_DONTFORK); /* a child is another process: it must not write under its parent's rank */
  place(c, base);
  return TNX_OK;
}

static tnx_status make_file(tnx_comm *c) {
  c->fd = memfd_create("tnx-comm", MFD_CLOEXEC);
  if (c->fd >= 0) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", c->fd);
    if (access(path, R_OK | W_OK) == 0) return TNX_OK;
    close(c->fd); /* no /proc: the others could not open it */
  }
  for (int attempt = 0; attempt < 8; attempt++) {
    snprintf(c->shm_name, sizeof c->shm_name, "/tnx-comm-%d-%016llx", (int)getpid(), (unsigned long long)c->nonce + (unsigned long long)attempt);
    c->fd = shm_open(c->shm_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (c->fd >= 0) return TNX_OK;
  }
  c->shm_name[0] = 0;
  return tnx_fail(TNX_IO, "no shared memory for group \"%s\": %s", c->name, strerror(errno));
}

tnx_status tnx_comm_create(int rank, int size, const char *name, tnx_comm **out) {
  tnx_comm *c;
  TNX_TRY(new_comm(rank, size, name, &c));
  tnx_status status;
  if (getrandom(&c->nonce, sizeof c->nonce, 0) != sizeof c->nonce) c->nonce = tnx_now_ns();
  TNX_TRY_DONE(make_file(c));
  if (ftruncate(c->fd, (off_t)c->bytes) != 0) {
    status = tnx_fail(TNX_OUT_OF_MEMORY, "a shared segment of %zu bytes for group \"%s\": %s", c->bytes, c->name, strerror(errno));
    goto done;
  }
  TNX_TRY_DONE(map(c));
  c->segment->bytes = c->bytes;
  c->segment->nonce = c->nonce;
  c->segment->size = (uint32_t)size;
  c->segment->magic = MAGIC;
  enter(c);
  *out = c;
  return TNX_OK;
done:
  tnx_comm_destroy(c);
  return status;
}

void tnx_comm_get_handle(const tnx_comm *c, unsigned char out[TNX_COMM_HANDLE_BYTES]) {
  handle h = {.magic = MAGIC, .bytes = c->bytes, .nonce = c->nonce, .pid = (int32_t)getpid(), .fd = c->fd, .size = (uint32_t)c->size};
  memcpy(h.shm_name, c->shm_name, sizeof h.shm_name);
  memset(out, 0, TNX_COMM_HANDLE_BYTES);
  memcpy(out, &h, sizeof h);
}

static tnx_status open_file(tnx_comm *c, const handle *h) {
  char path[64];
  if (h->shm_name[0]) {
    c->fd = shm_open(h->shm_name, O_RDWR | O_CLOEXEC, 0);
    snprintf(path, sizeof path, "%s", h->shm_name);
  } else {
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
    c->fd = open(path, O_RDWR | O_CLOEXEC);
  }
  if (c->fd < 0) return tnx_fail(TNX_IO, "the shared memory of group \"%s\" (%s) could not be opened: %s", c->name, path, strerror(errno));
  struct stat st;
  if (fstat(c->fd, &st) != 0 || st.st_uid != geteuid() || st.st_size != (off_t)c->bytes)
    return tnx_fail(TNX_IO, "%s is not the shared memory of group \"%s\": another owner or size", path, c->name);
  return TNX_OK;
}

tnx_status tnx_comm_attach(int rank, int size, const char *name, const unsigned char bytes[TNX_COMM_HANDLE_BYTES], tnx_comm **out) {
  handle h;
  memcpy(&h, bytes, sizeof h);
  h.shm_name[sizeof h.shm_name - 1] = 0;
  tnx_comm *c;
  TNX_TRY(new_comm(rank, size, name, &c));
  tnx_status status = TNX_OK;
  if (h.magic != MAGIC || h.size != (uint32_t)size || h.bytes != c->bytes)
    status = tnx_fail(TNX_INVALID_ARGUMENT, "the handle of group \"%s\" is not one of %d ranks of this version", c->name, size);
  TNX_TRY_DONE(status);
  TNX_TRY_DONE(open_file(c, &h));
  TNX_TRY_DONE(map(c));
  if (c->segment->magic != MAGIC || c->segment->nonce != h.nonce) {
    status = tnx_fail(TNX_IO, "the shared memory found for group \"%s\" belongs to another one", c->name);
    munmap(c->segment, c->bytes);
    c->segment = NULL;
    goto done;
  }
  c->nonce = h.nonce;
  enter(c);
  close(c->fd); /* the mapping stays */
  c->fd = -1;
  bool all = true;
  for (int p = 0; p < size; p++) all &= atomic_load(&c->peers[p].state) != TNX_PEER_ABSENT;
  if (all && h.shm_name[0]) shm_unlink(h.shm_name);
  *out = c;
  return TNX_OK;
done:
  tnx_comm_destroy(c);
  return status;
}

tnx_status tnx_comm_share(tnx_comm *first, int rank, tnx_comm **out) {
  tnx_comm *c;
  TNX_TRY(new_comm(rank, first->size, first->name, &c));
  c->owner = false;
  place(c, first->segment);
  enter(c);
  *out = c;
  return TNX_OK;
}

void tnx_comm_destroy(tnx_comm *c) {
  if (!c) return;
  if (c->segment) {
    atomic_store(&c->peers[c->rank].state, TNX_PEER_LEFT);
    for (int p = 0; p < c->size; p++)
      if (p != c->rank) tnx_peer_wake(&c->peers[p]);
    if (c->owner) munmap(c->segment, c->bytes);
  }
  if (c->fd >= 0) close(c->fd);
  if (c->shm_name[0]) shm_unlink(c->shm_name); /* only if somebody never came: the name is gone otherwise */
  for (int p = 0; p < c->size; p++)
    for (tnx_stash *s = c->inbox[p].first, *next; s; s = next) {
      next = s->next;
      tnx_heap_free(s);
    }
  pthread_mutex_destroy(&c->turn_lock);
  pthread_cond_destroy(&c->turn_changed);
  tnx_heap_free(c);
}

int tnx_comm_rank(const tnx_comm *c) { return c->rank; }
int tnx_comm_size(const tnx_comm *c) { return c->size; }

void tnx_comm_machine(char *out, size_t bytes) {
  char boot[64] = "", host[65] = "", space[64] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f) {
    if (fgets(boot, sizeof boot, f)) boot[strcspn(boot, "\n")] = 0;
    fclose(f);
  }
  gethostname(host, sizeof host - 1);
  ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[n > 0 ? n : 0] = 0;
  snprintf(out, bytes, "%s/%s/%s/%u", boot, host, space, (unsigned)geteuid());
}
