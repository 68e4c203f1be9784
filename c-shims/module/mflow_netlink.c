// SPDX-License-Identifier: GPL-2.0
/*
 * The generic netlink family mflow (netlink/mflow.yaml): the files of debugfs, for kernels that are
 * locked down, too, and notifications of flows that begin to be split, or stop.
 *
 * Requests hold netlink's lock of families for reading while they take rtnl and the module's own
 * lock, and while a switch waits for packets under way. A family that comes or goes meanwhile waits,
 * and holds up other families. So ours is unregistered without these locks, and that waits for
 * requests. A dump holds a reference to the module until it has been read, or its socket is closed.
 */

#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <net/genetlink.h>
#include <net/mflow_module.h>

#include "../netlink/mflow_netlink.h"
#include "mflow_shim.h"
#include "mflow_versions.h"

#define MFLOW_NAME_BYTES	31
#define MFLOW_DUMP_BYTES	(64 * 1024)
#define MFLOW_SET_BYTES		4096
/* A message with a part of a text fits into the smallest buffer of a dump, several times. */
#define MFLOW_PART_BYTES	1024
/* All names of files, and all sentences. */
#define MFLOW_SAID_BYTES	512
/* Between two times at which changes of flows are told. */
#define MFLOW_TELL_MS		100
/* Times that the family is registered, at most, until nobody has joined its group before it was there. */
#define MFLOW_REGISTERED_TIMES	8

enum {
	MFLOW_GROUP_FLOWS,
};

/* The text that a dump gives out, made when it begins: so a reader sees one state. */
struct mflow_dump {
	size_t	len;
	size_t	given;
	bool	ended;
	char	text[];
};

static struct genl_family mflow_family;

/* Notifications may be sent. Used under the configuration lock. */
static bool mflow_listening;

/*
 * Answers a request with a sentence of ours. That is done here, as netlink would look at the
 * sentence when it is gone. The value says that there has been an answer.
 */
static int mflow_answer(struct sk_buff *skb, int err, const char *said)
{
	const struct netlink_ext_ack extack = { ._msg = said };
	struct nlmsghdr *request = nlmsg_hdr(skb);

	if (err || request->nlmsg_flags & NLM_F_ACK)
		netlink_ack(skb, request, err, &extack);
	return -EINTR;
}

/* Returns the number of the file that a request names, or an error, then with a sentence. */
static int mflow_named(struct nlattr *const *attrs, char *said)
{
	const struct nlattr *name = attrs[MFLOW_A_FILE_NAME];

	return mflow_file_named(name ? nla_data(name) : "", said,
				MFLOW_SAID_BYTES - 1);
}

static struct mflow_dump **mflow_dump_of(struct netlink_callback *cb)
{
	return (struct mflow_dump **)cb->ctx;
}

static int mflow_get_start(struct netlink_callback *cb)
{
	char said[MFLOW_SAID_BYTES] = {};
	struct mflow_dump *dump;
	ssize_t len;
	int file;

	file = mflow_named(mflow_dump_attrs(cb), said);
	if (file < 0)
		return mflow_answer(cb->skb, file, said);

	dump = kvzalloc(sizeof(*dump) + MFLOW_DUMP_BYTES, GFP_KERNEL);
	if (!dump)
		return -ENOMEM;

	len = mflow_file_read(file, dump->text, MFLOW_DUMP_BYTES);
	if (len < 0) {
		kvfree(dump);
		return len;
	}
	dump->len = len;
	*mflow_dump_of(cb) = dump;
	return 0;
}

static bool mflow_put_text(struct sk_buff *skb, int type, const char *text,
			   unsigned int bytes)
{
	struct nlattr *attr = nla_reserve(skb, type, bytes + 1);
	char *to;

	if (!attr)
		return false;
	to = nla_data(attr);
	memcpy(to, text, bytes);
	to[bytes] = '\0';
	return true;
}

/* Gives the next part out. Returns false if the buffer has no room for it. */
static bool mflow_put_part(struct sk_buff *skb, struct netlink_callback *cb,
			   struct mflow_dump *dump)
{
	struct nlattr *name = mflow_dump_attrs(cb)[MFLOW_A_FILE_NAME];
	size_t bytes = min_t(size_t, dump->len - dump->given, MFLOW_PART_BYTES);
	void *header;

	header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid,
			     cb->nlh->nlmsg_seq, &mflow_family, NLM_F_MULTI,
			     MFLOW_CMD_GET);
	if (!header)
		return false;
	if (nla_put_string(skb, MFLOW_A_FILE_NAME, nla_data(name)) ||
	    !mflow_put_text(skb, MFLOW_A_FILE_TEXT, dump->text + dump->given,
			    bytes)) {
		genlmsg_cancel(skb, header);
		return false;
	}
	genlmsg_end(skb, header);
	dump->given += bytes;
	/* Of an empty text there is one part, too. */
	dump->ended = dump->given == dump->len;
	return true;
}

static int mflow_get_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct mflow_dump *dump = *mflow_dump_of(cb);

	while (!dump->ended && mflow_put_part(skb, cb, dump))
		;
	return dump->ended || skb->len ? skb->len : -EMSGSIZE;
}

static int mflow_get_done(struct netlink_callback *cb)
{
	kvfree(*mflow_dump_of(cb));
	return 0;
}

static int mflow_set(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *text = info->attrs[MFLOW_A_FILE_TEXT];
	char said[MFLOW_SAID_BYTES] = {};
	int file, err;

	file = mflow_named(info->attrs, said);
	if (file < 0)
		return mflow_answer(skb, file, said);
	if (!text) {
		NL_SET_ERR_MSG(info->extack, "text: what is to be written is missing");
		return -EINVAL;
	}
	err = mflow_file_write(file, nla_data(text), strlen(nla_data(text)),
			       said, sizeof(said) - 1);
	return said[0] ? mflow_answer(skb, err, said) : err;
}

static const struct nla_policy mflow_get_policy[MFLOW_A_FILE_NAME + 1] = {
	[MFLOW_A_FILE_NAME] = { .type = NLA_NUL_STRING, .len = MFLOW_NAME_BYTES },
};

static const struct nla_policy mflow_set_policy[MFLOW_A_FILE_TEXT + 1] = {
	[MFLOW_A_FILE_NAME] = { .type = NLA_NUL_STRING, .len = MFLOW_NAME_BYTES },
	[MFLOW_A_FILE_TEXT] = { .type = NLA_NUL_STRING, .len = MFLOW_SET_BYTES },
};

static const struct genl_ops mflow_netlink_ops[] = {
	{
		.cmd		= MFLOW_CMD_GET,
		.flags		= GENL_ADMIN_PERM,
		.policy		= mflow_get_policy,
		.maxattr	= ARRAY_SIZE(mflow_get_policy) - 1,
		.start		= mflow_get_start,
		.dumpit		= mflow_get_dump,
		.done		= mflow_get_done,
	},
	{
		.cmd		= MFLOW_CMD_SET,
		.flags		= GENL_ADMIN_PERM,
		.policy		= mflow_set_policy,
		.maxattr	= ARRAY_SIZE(mflow_set_policy) - 1,
		.doit		= mflow_set,
	},
};

/* Notifications name the addresses of those who send to this host. */
static const struct genl_multicast_group mflow_groups[] = {
	[MFLOW_GROUP_FLOWS] = {
		.name	= MFLOW_MCGRP_FLOWS,
		.flags	= GENL_MCAST_CAP_NET_ADMIN,
	},
};

/*
 * The family is there in the first namespace alone, as it is not netnsok. Requests wait for each other at
 * our own locks.
 */
static struct genl_family mflow_family __ro_after_init = {
	.name		= MFLOW_FAMILY_NAME,
	.version	= MFLOW_FAMILY_VERSION,
	.parallel_ops	= true,
	.module		= THIS_MODULE,
	.ops		= mflow_netlink_ops,
	.n_ops		= ARRAY_SIZE(mflow_netlink_ops),
	.mcgrps		= mflow_groups,
	.n_mcgrps	= ARRAY_SIZE(mflow_groups),
};

/* Returns whether anybody listens. Under the configuration lock. */
bool mflow_changes_wanted(void)
{
	return mflow_listening &&
	       genl_has_listeners(&mflow_family, &init_net, MFLOW_GROUP_FLOWS) > 0;
}

static bool mflow_put_ends(struct sk_buff *skb, const struct mflow_change *change)
{
	return !change->address_bytes ||
	       !(nla_put_u8(skb, MFLOW_A_CHANGE_PROTOCOL, change->protocol) ||
		 nla_put(skb, MFLOW_A_CHANGE_FROM_ADDRESS, change->address_bytes,
			 change->from) ||
		 nla_put_u16(skb, MFLOW_A_CHANGE_FROM_PORT, change->from_port) ||
		 nla_put(skb, MFLOW_A_CHANGE_TO_ADDRESS, change->address_bytes,
			 change->to) ||
		 nla_put_u16(skb, MFLOW_A_CHANGE_TO_PORT, change->to_port));
}

static bool mflow_put_change(struct sk_buff *skb, const struct mflow_change *change)
{
	u32 kind = change->begins ? MFLOW_CHANGE_KIND_SPLIT :
				    MFLOW_CHANGE_KIND_STOPPED;

	if (nla_put_u32(skb, MFLOW_A_CHANGE_KIND, kind) ||
	    !mflow_put_text(skb, MFLOW_A_CHANGE_DEVICE, change->device,
			    change->device_bytes) ||
	    nla_put_u32(skb, MFLOW_A_CHANGE_CPU, change->cpu))
		return false;
	if (change->has_queue &&
	    nla_put_u16(skb, MFLOW_A_CHANGE_QUEUE, change->queue))
		return false;
	if (change->has_pps && nla_put_u32(skb, MFLOW_A_CHANGE_PPS, change->pps))
		return false;
	if (change->lost && nla_put_u32(skb, MFLOW_A_CHANGE_LOST, change->lost))
		return false;
	if (!change->begins &&
	    !(mflow_put_text(skb, MFLOW_A_CHANGE_REASON, change->reason,
			     change->reason_bytes) &&
	      mflow_put_text(skb, MFLOW_A_CHANGE_WORDS, change->words,
			     change->words_bytes)))
		return false;
	return mflow_put_ends(skb, change);
}

/*
 * Tells all who listen. Returns false if there is no memory for that. Process context, under the
 * configuration lock.
 */
bool mflow_tell_change(const struct mflow_change *change)
{
	struct sk_buff *skb = genlmsg_new(GENLMSG_DEFAULT_SIZE, GFP_KERNEL);
	void *header;

	if (!skb)
		return false;
	header = genlmsg_put(skb, 0, 0, &mflow_family, 0, MFLOW_CMD_CHANGE_NTF);
	if (!header || !mflow_put_change(skb, change)) {
		nlmsg_free(skb);
		return false;
	}
	genlmsg_end(skb, header);
	/* One who reads too slowly gets an error from his socket. */
	genlmsg_multicast_netns(&mflow_family, &init_net, skb, 0,
				MFLOW_GROUP_FLOWS, GFP_KERNEL);
	return true;
}

static void mflow_tell_work(struct work_struct *work)
{
	mflow_tell_changes();
}

static DECLARE_DELAYED_WORK(mflow_tell_item, mflow_tell_work);

/* Asks for changes to be told, by work that takes locks. Any context. */
void mflow_tell_soon(void)
{
	queue_delayed_work(mflow_unbound_wq, &mflow_tell_item,
			   msecs_to_jiffies(MFLOW_TELL_MS));
}

/* Waits until that work has ended. No locks held. */
void mflow_tell_cancel(void)
{
	cancel_delayed_work_sync(&mflow_tell_item);
}

/*
 * Returns whether sockets have joined our group. Netlink asks nobody for rights who joins a group
 * before a family has it.
 */
static bool mflow_has_joined(void)
{
	return netlink_has_listeners(init_net.genl_sock,
				     mflow_family.mcgrp_offset + MFLOW_GROUP_FLOWS);
}

/* No locks held. */
int mflow_netlink_register(void)
{
	unsigned int times;
	int err = genl_register_family(&mflow_family);

	/* A family that goes takes the members of its groups with it. */
	for (times = 1; !err && mflow_has_joined() && times < MFLOW_REGISTERED_TIMES; times++) {
		genl_unregister_family(&mflow_family);
		err = genl_register_family(&mflow_family);
	}
	if (err)
		return err;
	if (mflow_has_joined()) {
		pr_warn("netlink's group flows had members before it was there: it stays silent until the module is loaded again\n");
		return 0;
	}
	mflow_config_lock();
	mflow_listening = true;
	mflow_config_unlock();
	return 0;
}

/* No locks held. When it returns, no request or notification is under way; a dump keeps the module. */
void mflow_netlink_unregister(void)
{
	mflow_config_lock();
	mflow_listening = false;
	mflow_config_unlock();
	genl_unregister_family(&mflow_family);
}
