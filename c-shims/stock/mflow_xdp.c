// SPDX-License-Identifier: GPL-2.0
/*
 * The program that is attached to an opted-in device, in its driver, where lanes are to build packets: it redirects what could be
 * split to a device of ours (mflow_frames.c), by a map that has nothing but that device. Before our device goes the map is emptied,
 * and everything passes: so what takes the program away later need not be waited for.
 */

#include <linux/bpf.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/filter.h>
#include <linux/if_link.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "../module/mflow_versions.h"
#include "mflow_stock.h"

MFLOW_IMPORT_BPF;

/* So long a program that has been given up may stay attached. */
#define MFLOW_XDP_WAIT_MS	1000

/**
 * struct mflow_xdp - an attached program
 * @list:	in mflow_xdp_ends, once it has been given up
 * @nic:	the NIC that has the program, with a reference
 * @link:	with a reference, the only one
 * @map:	the map by which the program redirects, with a reference
 */
struct mflow_xdp {
	struct list_head	list;
	struct net_device	*nic;
	struct bpf_link		*link;
	struct bpf_map		*map;
};

static DEFINE_SPINLOCK(mflow_xdp_lock);
static LIST_HEAD(mflow_xdp_ends);

/* The header bytes that are looked at: Ethernet's header and IPv4's without options, behind which IPv6 is longer still. */
#define MFLOW_XDP_HEADER	(ETH_HLEN + sizeof(struct iphdr))
/* Fields of the packet as operands, which have no byte order. */
#define MFLOW_XDP_BE16(value)	((__force s32)htons(value))
#define MFLOW_XDP_BE32(value)	((__force s32)htonl(value))
/* The index of BPF_LD_MAP_FD() below, which has two instructions. */
#define MFLOW_XDP_MAP_AT	14

/*
 * UDP in IPv4 or IPv6 that is no fragment is redirected; all else passes, and so does that where our device has gone. r0 is the
 * verdict, or what has been read; r1 the context, then scratch; r2 where the packet begins; r3 where it ends.
 */
static const struct bpf_insn mflow_xdp_program[] = {
	/* 0: the packet, from its Ethernet header on, */
	BPF_LDX_MEM(BPF_W, BPF_REG_2, BPF_REG_1, offsetof(struct xdp_md, data)),
	/* 1: and its end. */
	BPF_LDX_MEM(BPF_W, BPF_REG_3, BPF_REG_1, offsetof(struct xdp_md, data_end)),
	/* 2, 3: the end of what is looked at. */
	BPF_MOV64_REG(BPF_REG_1, BPF_REG_2),
	BPF_ALU64_IMM(BPF_ADD, BPF_REG_1, MFLOW_XDP_HEADER),
	/* 4: a packet that is shorter passes (at 20). */
	BPF_JMP_REG(BPF_JGT, BPF_REG_1, BPF_REG_3, 15),
	/* 5, 6: IPv4 follows, or something else (at 11). */
	BPF_LDX_MEM(BPF_H, BPF_REG_1, BPF_REG_2, offsetof(struct ethhdr, h_proto)),
	BPF_JMP_IMM(BPF_JNE, BPF_REG_1, MFLOW_XDP_BE16(ETH_P_IP), 4),
	/* 7, 8, 9: UDP that is no fragment is redirected (at 14). */
	BPF_LDX_MEM(BPF_W, BPF_REG_0, BPF_REG_2, ETH_HLEN + offsetof(struct iphdr, frag_off)),
	BPF_ALU64_IMM(BPF_AND, BPF_REG_0, MFLOW_XDP_BE32(MFLOW_IPV4_WHOLE_MASK)),
	BPF_JMP_IMM(BPF_JEQ, BPF_REG_0, MFLOW_XDP_BE32(IPPROTO_UDP), 4),
	/* 10: anything else passes (at 20). */
	BPF_JMP_A(9),
	/* 11: if IPv6 does not follow either, the packet passes (at 20), */
	BPF_JMP_IMM(BPF_JNE, BPF_REG_1, MFLOW_XDP_BE16(ETH_P_IPV6), 8),
	/* 12, 13: as anything but UDP does (at 20). */
	BPF_LDX_MEM(BPF_B, BPF_REG_0, BPF_REG_2, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr)),
	BPF_JMP_IMM(BPF_JNE, BPF_REG_0, IPPROTO_UDP, 6),
	/* 14, 15: the map, whose number is filled in; */
	BPF_LD_MAP_FD(BPF_REG_1, 0),
	/* 16: its only entry; */
	BPF_MOV64_IMM(BPF_REG_2, 0),
	/* 17: the verdict if there is none. */
	BPF_MOV64_IMM(BPF_REG_3, XDP_PASS),
	/* 18, 19: its device gets the packet when the driver ends this poll, or has 16 of them. */
	BPF_RAW_INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map),
	BPF_EXIT_INSN(),
	/* 20, 21 */
	BPF_MOV64_IMM(BPF_REG_0, XDP_PASS),
	BPF_EXIT_INSN(),
};

/* Makes the map. Returns the number of a file of this process, or an error. */
static int mflow_xdp_map(const struct net_device *to)
{
	union bpf_attr create = {
		.map_type = BPF_MAP_TYPE_DEVMAP,
		.key_size = sizeof(u32),
		.value_size = sizeof(u32),
		.max_entries = 1,
		.map_name = "mflow",
	};
	u32 key = 0, value = to->ifindex;
	union bpf_attr update = {
		.key = (unsigned long)&key,
		.value = (unsigned long)&value,
	};
	int map, err;

	map = kern_sys_bpf(BPF_MAP_CREATE, &create, sizeof(create));
	if (map < 0)
		return map;
	update.map_fd = map;
	err = kern_sys_bpf(BPF_MAP_UPDATE_ELEM, &update, sizeof(update));
	if (!err)
		return map;
	close_fd(map);
	return err;
}

/* Loads the program, with a result of the same kind. */
static int mflow_xdp_load(int map)
{
	struct bpf_insn program[ARRAY_SIZE(mflow_xdp_program)];
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_XDP,
		.expected_attach_type = BPF_XDP,
		.insns = (unsigned long)program,
		.insn_cnt = ARRAY_SIZE(program),
		.license = (unsigned long)"GPL",
		.prog_name = "mflow",
	};

	memcpy(program, mflow_xdp_program, sizeof(program));
	program[MFLOW_XDP_MAP_AT].imm = map;
	return kern_sys_bpf(BPF_PROG_LOAD, &load, sizeof(load));
}

/* Attaches the program, in the driver or not at all, with a result of the same kind. */
static int mflow_xdp_link(int program, const struct net_device *nic)
{
	union bpf_attr link = {
		.link_create.prog_fd = program,
		.link_create.target_ifindex = nic->ifindex,
		.link_create.attach_type = BPF_XDP,
		.link_create.flags = XDP_FLAGS_DRV_MODE,
	};

	return kern_sys_bpf(BPF_LINK_CREATE, &link, sizeof(link));
}

/* Takes references of what these numbers are of, and gives the numbers back. */
static int mflow_xdp_keep(struct mflow_xdp *xdp, int map, int link)
{
	xdp->map = bpf_map_get(map);
	close_fd(map);
	xdp->link = bpf_link_get_from_fd(link);
	close_fd(link);
	if (!IS_ERR(xdp->map) && !IS_ERR(xdp->link))
		return 0;
	/* Somebody else in this process has closed them. */
	if (!IS_ERR(xdp->map))
		bpf_map_put(xdp->map);
	if (!IS_ERR(xdp->link))
		bpf_link_put(xdp->link);
	return -EBADF;
}

static struct mflow_xdp *mflow_xdp_attach(struct net_device *nic, const struct net_device *to)
{
	struct mflow_xdp *xdp;
	int map, program, link, err;

	xdp = kzalloc(sizeof(*xdp), GFP_KERNEL);
	if (!xdp)
		return ERR_PTR(-ENOMEM);
	map = mflow_xdp_map(to);
	program = map < 0 ? map : mflow_xdp_load(map);
	link = program < 0 ? program : mflow_xdp_link(program, nic);
	if (program >= 0)
		close_fd(program);
	if (link < 0 && map >= 0)
		close_fd(map);
	err = link < 0 ? link : mflow_xdp_keep(xdp, map, link);
	if (err) {
		kfree(xdp);
		return ERR_PTR(err);
	}
	dev_hold(nic);
	xdp->nic = nic;
	return xdp;
}

/*
 * Attaches the program to @nic, from where it redirects to @to, both in the namespace of this process. Process context without
 * locks. Returns what mflow_xdp_end() takes, or an error pointer. The program is the module's: those who may set knobs need no right
 * to load programs.
 */
struct mflow_xdp *mflow_xdp_begin(struct net_device *nic, const struct net_device *to)
{
	struct cred *own = prepare_kernel_cred(&init_task);
	const struct cred *callers;
	struct mflow_xdp *xdp;

	if (!own)
		return ERR_PTR(-ENOMEM);
	callers = override_creds(own);
	xdp = mflow_xdp_attach(nic, to);
	revert_creds(callers);
	put_cred(own);
	return xdp;
}

/* Lets everything pass: when it returns, no packet goes to our device any more. Process context; locks may be held. */
void mflow_xdp_pass(struct mflow_xdp *xdp)
{
	u32 key = 0;

	/* Our device is to be there as long as it is in the map: what is redirected to one that is closed is dropped. */
	rcu_read_lock();
	xdp->map->ops->map_delete_elem(xdp->map, &key);
	rcu_read_unlock();
	/* A poll hands over what it has redirected before it ends. */
	synchronize_net();
}

static bool mflow_xdp_is_attached(const struct mflow_xdp *xdp)
{
	const struct bpf_xdp_entity *native = &xdp->nic->xdp_state[XDP_MODE_DRV];

	/* The link itself may be gone: only where it was is compared. A bpf_xdp_link begins with it. */
	return (void *)READ_ONCE(native->link) == xdp->link;
}

static void mflow_xdp_end_work(struct work_struct *work)
{
	struct mflow_xdp *xdp;
	unsigned int ms;

	for (;;) {
		spin_lock(&mflow_xdp_lock);
		xdp = list_first_entry_or_null(&mflow_xdp_ends, struct mflow_xdp, list);
		if (xdp)
			list_del(&xdp->list);
		spin_unlock(&mflow_xdp_lock);
		if (!xdp)
			return;
		/* Takes rtnl, if not in work of its own. */
		bpf_link_put(xdp->link);
		for (ms = 0; mflow_xdp_is_attached(xdp) && ms < MFLOW_XDP_WAIT_MS; ms++)
			usleep_range(1000, 2000);
		dev_put(xdp->nic);
		bpf_map_put(xdp->map);
		kfree(xdp);
	}
}

static DECLARE_WORK(mflow_xdp_end_item, mflow_xdp_end_work);

/* Gives the link up, by work. Process context; locks may be held. */
void mflow_xdp_end(struct mflow_xdp *xdp)
{
	spin_lock(&mflow_xdp_lock);
	list_add_tail(&xdp->list, &mflow_xdp_ends);
	spin_unlock(&mflow_xdp_lock);
	queue_work(mflow_unbound_wq, &mflow_xdp_end_item);
}

/* Waits until what has been given up is detached. No locks held. */
void mflow_xdp_wait(void)
{
	flush_work(&mflow_xdp_end_item);
}
