/* The processes behind the ranks. Internal to core/comm. */
#ifndef TNX_COMM_PEERS_H
#define TNX_COMM_PEERS_H
#include "comm/segment.h"

/* When a process was started, in the kernel's ticks; 0 if there is no such process or it has ended and waits for its parent. */
uint64_t tnx_process_start_time(int pid);
bool tnx_peer_is_alive(const tnx_peer *p);
/* Wakes the rank if it sleeps. */
void tnx_peer_wake(tnx_peer *p);
#endif
