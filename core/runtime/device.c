/* Devices: properties and waiting for all of a device's work. */
#include "runtime/state.h"

tnx_status tnx_device_get_props(int device, tnx_device_props *out) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  *out = d->props;
  out->cores = tnx_runtime_get_threads();
  return TNX_OK;
}

tnx_status tnx_device_synchronize(int device) {
  tnx_device *d;
  TNX_TRY(tnx_device_get(device, &d));
  int n = atomic_load(&d->stream_count);
  for (int i = 0; i < n; i++) {
    tnx_stream *s = atomic_load(&d->streams[i]);
    if (tnx_stream_is_mine(s)) return tnx_fail(TNX_INVALID_ARGUMENT, "a task may not wait for the device it runs on");
    tnx_stream_wait(s, tnx_stream_pushed(s));
  }
  for (int i = 0; i < n; i++) TNX_TRY(tnx_stream_take_error(atomic_load(&d->streams[i])));
  return TNX_OK;
}
