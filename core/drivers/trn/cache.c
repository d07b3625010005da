/* NEFFs on disk: <cache>/ab/<key>.neff as the compiler wrote it, beside it <key>.sum, which says what it was made of and what it must hash to, and <key>.lock.
 *
 * Files appear whole, by renaming; a NEFF without a sum that fits it is none, whatever interrupted its writer. The least recently used ones go when the limit is passed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/vec.h"
#include "drivers/trn/trn.h"

enum { SEED_NAME = 0x6e656666, SEED_NAME2 = 0x32, SEED_CHECK = 0x63686b, SEED_SUM = 0x73756d };

/* ---- files ---- */

tnx_status trn_folder_make(const char *path) {
  char part[TRN_PATH_BYTES];
  snprintf(part, sizeof part, "%s", path);
  for (char *p = part + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    if (mkdir(part, 0700) && errno != EEXIST) return tnx_fail(TNX_IO, "the folder %.500s could not be made: %s", part, strerror(errno));
    *p = '/';
  }
  if (mkdir(part, 0700) && errno != EEXIST) return tnx_fail(TNX_IO, "the folder %.500s could not be made: %s", part, strerror(errno));
  return TNX_OK;
}

tnx_status trn_file_read(const char *path, void **out, size_t *bytes_out) {
  *out = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? TNX_OK : tnx_fail(TNX_IO, "%.500s could not be opened: %s", path, strerror(errno));
  struct stat st;
  tnx_status status = fstat(fd, &st) || !S_ISREG(st.st_mode) ? tnx_fail(TNX_IO, "%.500s is not a file", path) : TNX_OK;
  size_t size = status == TNX_OK ? (size_t)st.st_size : 0, at = 0;
  unsigned char *data = status == TNX_OK ? tnx_heap_alloc(size + 1) : NULL;
  if (status == TNX_OK && !data) status = tnx_fail(TNX_OUT_OF_MEMORY, "no host memory for %.500s", path);
  while (status == TNX_OK && at < size) {
    ssize_t n = read(fd, data + at, size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) status = tnx_fail(TNX_IO, "%.500s could not be read: %s", path, n ? strerror(errno) : "it became shorter");
    else at += (size_t)n;
  }
  close(fd);
  if (status != TNX_OK) {
    tnx_heap_free(data);
    return status;
  }
  data[size] = 0;
  *out = data;
  *bytes_out = size;
  return TNX_OK;
}

tnx_status trn_file_write(const char *path, const void *data, size_t bytes) {
  static _Atomic unsigned count;
  char temporary[TRN_PATH_BYTES + 64];
  snprintf(temporary, sizeof temporary, "%s.%ld.%u.tmp", path, (long)getpid(), atomic_fetch_add(&count, 1));
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return tnx_fail(TNX_IO, "%.500s could not be made: %s", temporary, strerror(errno));
  const char *p = data;
  tnx_status status = TNX_OK;
  for (size_t at = 0; at < bytes && status == TNX_OK;) {
    ssize_t n = write(fd, p + at, bytes - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) status = tnx_fail(TNX_IO, "%.500s could not be written: %s", temporary, strerror(errno));
    else at += (size_t)n;
  }
  if (close(fd) && status == TNX_OK) status = tnx_fail(TNX_IO, "%.500s could not be written: %s", temporary, strerror(errno));
  if (status == TNX_OK && rename(temporary, path)) status = tnx_fail(TNX_IO, "%.500s could not be named: %s", path, strerror(errno));
  if (status != TNX_OK) unlink(temporary);
  return status;
}

/* ---- keys ---- */

void trn_key_make(const trn_settings *s, const char *text, size_t bytes, trn_key *out) {
  uint64_t a = tnx_hash_bytes(text, bytes, SEED_NAME), b = tnx_hash_bytes(text, bytes, SEED_NAME2), c = tnx_hash_bytes(text, bytes, SEED_CHECK);
  const char *const parts[] = {s->identity, s->target, s->flags};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    a = tnx_hash_bytes(parts[i], strlen(parts[i]), a);
    b = tnx_hash_bytes(parts[i], strlen(parts[i]), b);
    c = tnx_hash_bytes(parts[i], strlen(parts[i]), c);
  }
  snprintf(out->text, sizeof out->text, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
  out->check = c;
  out->length = bytes;
}

void trn_cache_path(const trn_settings *s, const trn_key *k, const char *suffix, char out[TRN_PATH_BYTES]) {
  snprintf(out, TRN_PATH_BYTES, "%s/%.2s/%s%s", s->cache, k->text, k->text, suffix);
}

tnx_status trn_cache_make_folder(const trn_settings *s, const trn_key *k) {
  char folder[TRN_PATH_BYTES];
  snprintf(folder, sizeof folder, "%s/%.2s", s->cache, k->text);
  return trn_folder_make(folder);
}

static void sum_of(const trn_key *k, const void *neff, size_t bytes, char *out, size_t size) {
  snprintf(out, size, "tnx-neff 1\nsource %016llx %llu\nneff %016llx %zu\n", (unsigned long long)k->check, (unsigned long long)k->length,
           (unsigned long long)tnx_hash_bytes(neff, bytes, SEED_SUM), bytes);
}

tnx_status trn_cache_load(const trn_settings *s, const trn_key *k, void **out, size_t *bytes_out) {
  char path[TRN_PATH_BYTES], want[200];
  void *sum;
  size_t n;
  *out = NULL;
  if (!s->cache[0]) return TNX_OK;
  trn_cache_path(s, k, ".sum", path);
  TNX_TRY(trn_file_read(path, &sum, &n));
  if (!sum) return TNX_OK;
  trn_cache_path(s, k, ".neff", path);
  tnx_status status = trn_file_read(path, out, bytes_out);
  if (status == TNX_OK && *out) {
    sum_of(k, *out, *bytes_out, want, sizeof want);
    if (strlen(want) != n || memcmp(want, sum, n)) {
      TNX_LOG(PLAN, "%s is not whole or was made of something else: it is compiled anew", path);
      tnx_heap_free(*out);
      *out = NULL;
    } else {
      utimensat(AT_FDCWD, path, NULL, 0); /* used now */
    }
  }
  tnx_heap_free(sum);
  return status;
}

/* ---- the limit ---- */

typedef struct kept { char name[64]; time_t used; uint64_t bytes; } kept;

static int by_use(const void *x, const void *y) {
  const kept *a = x, *b = y;
  return a->used < b->used ? -1 : a->used > b->used;
}

typedef struct tally { TNX_VEC(kept) files; uint64_t bytes; } tally;

/* Adds the NEFFs of one of the cache's folders. */
static void scan(const char *cache, const char *shard, tally *t) {
  char folder[TRN_PATH_BYTES], path[TRN_PATH_BYTES + 300];
  snprintf(folder, sizeof folder, "%.900s/%.2s", cache, shard);
  DIR *d = opendir(folder);
  struct stat st;
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (n <= 5 || strcmp(e->d_name + n - 5, ".neff") != 0 || stat(path, &st) != 0) continue;
    kept k = {.used = st.st_mtime, .bytes = (uint64_t)st.st_size};
    snprintf(k.name, sizeof k.name, "%.*s", (int)(n - 5), e->d_name);
    if (tnx_vec_push(&t->files, k)) t->bytes += k.bytes;
  }
  if (d) closedir(d);
}

static void trim(const trn_settings *s) {
  tally t = {0};
  char shard[3], path[TRN_PATH_BYTES];
  for (int i = 0; i < 256; i++) {
    snprintf(shard, sizeof shard, "%02x", i);
    scan(s->cache, shard, &t);
  }
  if (t.bytes > s->cache_limit) {
    qsort(t.files.data, t.files.len, sizeof *t.files.data, by_use);
    for (uint32_t i = 0; i < t.files.len && t.bytes > s->cache_limit / 10 * 9; i++) {
      trn_key k;
      snprintf(k.text, sizeof k.text, "%.39s", t.files.data[i].name);
      trn_cache_path(s, &k, ".sum", path);
      unlink(path);
      trn_cache_path(s, &k, ".neff", path);
      if (unlink(path) == 0) t.bytes -= t.files.data[i].bytes;
    }
  }
  tnx_vec_fini(&t.files);
}

tnx_status trn_cache_store(const trn_settings *s, const trn_key *k, const void *neff, size_t bytes) {
  static _Atomic unsigned stored;
  char path[TRN_PATH_BYTES], sum[200];
  if (!s->cache[0]) return TNX_OK;
  trn_cache_path(s, k, ".sum", path);
  unlink(path); /* until the new one is there the old NEFF is none */
  trn_cache_path(s, k, ".neff", path);
  TNX_TRY(trn_file_write(path, neff, bytes));
  trn_cache_path(s, k, ".sum", path);
  sum_of(k, neff, bytes, sum, sizeof sum);
  TNX_TRY(trn_file_write(path, sum, strlen(sum)));
  if (atomic_fetch_add(&stored, 1) % 64 == 0) trim(s);
  return TNX_OK;
}

tnx_status trn_cache_lock(const trn_settings *s, const trn_key *k, int *lock_out) {
  char path[TRN_PATH_BYTES];
  *lock_out = -1;
  if (!s->cache[0]) return TNX_OK;
  TNX_TRY(trn_cache_make_folder(s, k));
  trn_cache_path(s, k, ".lock", path);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return tnx_fail(TNX_IO, "the lock %.500s could not be opened: %s", path, strerror(errno));
  for (uint64_t waited = 0; flock(fd, LOCK_EX | LOCK_NB); waited += 50) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || waited > (uint64_t)s->lock_timeout * 1000) {
      tnx_status status = errno == EWOULDBLOCK ? tnx_fail(TNX_TIMEOUT, "another process has been compiling this program for more than %u s (lock %.500s; TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT)", s->lock_timeout, path)
                                               : tnx_fail(TNX_IO, "the lock %.500s could not be taken: %s", path, strerror(errno));
      close(fd);
      return status;
    }
    nanosleep(&(struct timespec){0, 50 * 1000 * 1000}, NULL);
  }
  *lock_out = fd;
  return TNX_OK;
}

void trn_cache_unlock(int lock) {
  if (lock >= 0) close(lock); /* the file stays: removing it would give two processes two locks */
}
