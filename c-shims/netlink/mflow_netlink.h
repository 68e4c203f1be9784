/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The numbers of the netlink family mflow, as the kernel's generator makes them of mflow.yaml
 * (cargo xtask test module compares).
 */

#ifndef _UAPI_LINUX_MFLOW_H
#define _UAPI_LINUX_MFLOW_H

#define MFLOW_FAMILY_NAME	"mflow"
#define MFLOW_FAMILY_VERSION	1

/**
 * enum mflow_change_kind - Kinds of changes of a flow.
 * @MFLOW_CHANGE_KIND_SPLIT: The flow begins to be split.
 * @MFLOW_CHANGE_KIND_STOPPED: The flow is not split any longer.
 */
enum mflow_change_kind {
	MFLOW_CHANGE_KIND_SPLIT,
	MFLOW_CHANGE_KIND_STOPPED,
};

enum {
	MFLOW_A_FILE_NAME = 1,
	MFLOW_A_FILE_TEXT,

	__MFLOW_A_FILE_MAX,
	MFLOW_A_FILE_MAX = (__MFLOW_A_FILE_MAX - 1)
};

enum {
	MFLOW_A_CHANGE_KIND = 1,
	MFLOW_A_CHANGE_DEVICE,
	MFLOW_A_CHANGE_QUEUE,
	MFLOW_A_CHANGE_PROTOCOL,
	MFLOW_A_CHANGE_FROM_ADDRESS,
	MFLOW_A_CHANGE_FROM_PORT,
	MFLOW_A_CHANGE_TO_ADDRESS,
	MFLOW_A_CHANGE_TO_PORT,
	MFLOW_A_CHANGE_CPU,
	MFLOW_A_CHANGE_PPS,
	MFLOW_A_CHANGE_REASON,
	MFLOW_A_CHANGE_WORDS,
	MFLOW_A_CHANGE_LOST,

	__MFLOW_A_CHANGE_MAX,
	MFLOW_A_CHANGE_MAX = (__MFLOW_A_CHANGE_MAX - 1)
};

enum {
	MFLOW_CMD_GET = 1,
	MFLOW_CMD_SET,
	MFLOW_CMD_CHANGE_NTF,

	__MFLOW_CMD_MAX,
	MFLOW_CMD_MAX = (__MFLOW_CMD_MAX - 1)
};

#define MFLOW_MCGRP_FLOWS	"flows"

#endif /* _UAPI_LINUX_MFLOW_H */
