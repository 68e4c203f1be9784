/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _MFLOW_SHIM_H
#define _MFLOW_SHIM_H

#include <linux/types.h>

struct net_device;

/* patched/mflow_hook_fields.c or stock/mflow_port.c; under rtnl. */
bool mflow_device_has_port(const struct net_device *dev);
void mflow_device_features_changed(struct net_device *dev);

/* mflow_worker.c */
int mflow_worker_init(void);
void mflow_worker_exit(void);

/* mflow_netlink.c */
void mflow_tell_cancel(void);

/* mflow_load.c */
void mflow_restage_cancel(void);

/* mflow_placement.c */
void mflow_placing_stop(void);

#endif /* _MFLOW_SHIM_H */
