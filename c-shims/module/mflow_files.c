// SPDX-License-Identifier: GPL-2.0
/*
 * Knobs: the debugfs files and the module parameters of the same names. The
 * declarations here are made from the knobs in rust/algo/knobs/mod.rs.
 */

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/mflow_module.h>

#define MFLOW_READ_BYTES	(64 * 1024)
#define MFLOW_WRITE_BYTES	4096

/* cargo xtask docs: parameters */
static char *enabled;
module_param(enabled, charp, 0);
MODULE_PARM_DESC(enabled,
		 "The switch: with 1 flows are split. Allowed: 0 (off) or 1 (on). Default: 0.");

static char *cpus;
module_param(cpus, charp, 0);
MODULE_PARM_DESC(cpus,
		 "The lanes: online CPUs. auto chooses them, and again when interrupts or readers move. Allowed: auto, or up to 16 CPUs below 1024, written like 2-5,8, or nothing for none. Default: none.");

static char *batch_pkts;
module_param(batch_pkts, charp, 0);
MODULE_PARM_DESC(batch_pkts,
		 "The number of packets in a micro-flow, at most. Allowed: 1 to 4096 packets. Default: 256.");

static char *merge_timeout_us;
module_param(merge_timeout_us, charp, 0);
MODULE_PARM_DESC(merge_timeout_us,
		 "The time for which a silent lane may hold a flow up. Allowed: 10 to 1000000 microseconds. Default: 200.");

static char *min_flow_pps;
module_param(min_flow_pps, charp, 0);
MODULE_PARM_DESC(min_flow_pps,
		 "The packet rate from which a flow is split. Allowed: 1 to 10000000 packets per second. Default: 20000.");

static char *scaling;
module_param(scaling, charp, 0);
MODULE_PARM_DESC(scaling,
		 "The place at which flows are split. path: before GRO, and lanes carry all of the way. device: behind GRO, where RPS acts. Allowed: path or device. Default: path.");

static char *build;
module_param(build, charp, 0);
MODULE_PARM_DESC(build,
		 "The core that builds the packets of split flows, with drivers that leave the choice: nic, lane, or with auto for each batch the one that has less to do. On an unpatched kernel it is nic, unless build is lane: that attaches an XDP program to the device, which loses offloads. Allowed: auto, nic or lane. Default: auto.");

static char *join;
module_param(join, charp, 0);
MODULE_PARM_DESC(join,
		 "With 1, lanes make few packets of many. Datagrams of one size go on in lists of up to 64. With our patches a socket with UDP_GRO gets them as one packet. Where lanes build packets, most segments join the packet before them, and do not become packets. With our patches that needs virtio_net with buffers that are merged, or ConnectX. Allowed: 0 (off) or 1 (on). Default: 1.");

static char *layout;
module_param(layout, charp, 0);
MODULE_PARM_DESC(layout,
		 "The number of CPUs of a lane. lane: one. lane+stage: two, of which one builds packets and the other carries them. Allowed: lane or lane+stage. Default: lane.");

static char *mode;
module_param(mode, charp, 0);
MODULE_PARM_DESC(mode,
		 "The way in which a flow uses several CPUs. mflow: it is split, and merged in order. falcon-dev, falcon-func: it goes as a whole from CPU to CPU, from behind the NIC's GRO or before it. Allowed: mflow, falcon-dev or falcon-func. Default: mflow.");

static char *stages;
module_param(stages, charp, 0);
MODULE_PARM_DESC(stages,
		 "The points at which a flow goes on to the next CPU, in the modes of FALCON: the NIC, the end of a tunnel, a veth. Allowed: nic+tunnel+veth, nic+tunnel, nic+veth or nic. Default: nic+tunnel+veth.");

static char *load_threshold_pct;
module_param(load_threshold_pct, charp, 0);
MODULE_PARM_DESC(load_threshold_pct,
		 "The load of a CPU that lanes are not to reach. Flows get lanes by need, small batches while there is time, and none of busy CPUs; stages leave busy CPUs. 0 leaves each flow all lanes. Allowed: 0 to 100 per cent. Default: 85.");
/* end */

static char *devices;
module_param(devices, charp, 0);
MODULE_PARM_DESC(devices, "network devices whose flows are split, by commas");

#define MFLOW_PARAM(name)	{ #name, &(name) }

static const struct {
	const char	*name;
	char		**value;
} mflow_params[] = {
	MFLOW_PARAM(enabled),
	MFLOW_PARAM(cpus),
	MFLOW_PARAM(batch_pkts),
	MFLOW_PARAM(merge_timeout_us),
	MFLOW_PARAM(min_flow_pps),
	MFLOW_PARAM(scaling),
	MFLOW_PARAM(build),
	MFLOW_PARAM(join),
	MFLOW_PARAM(layout),
	MFLOW_PARAM(mode),
	MFLOW_PARAM(stages),
	MFLOW_PARAM(load_threshold_pct),
	MFLOW_PARAM(devices),
};

/* Finds the value of a parameter, which is NULL if none was given. Returns -ENOENT if no parameter has this name. */
int mflow_param(const char *name, const char **value)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(mflow_params); i++) {
		if (strcmp(mflow_params[i].name, name))
			continue;
		*value = *mflow_params[i].value;
		return 0;
	}
	return -ENOENT;
}

struct mflow_text {
	size_t	len;
	char	text[];
};

static struct dentry *mflow_dir;

static unsigned int mflow_file_number(struct file *file)
{
	return (unsigned long)file_inode(file)->i_private;
}

/* Makes the text at open, so that a reader sees one state, however it reads. */
static int mflow_file_open(struct inode *inode, struct file *file)
{
	struct mflow_text *text;
	ssize_t len;

	if (!(file->f_mode & FMODE_READ))
		return 0;

	text = kvzalloc(sizeof(*text) + MFLOW_READ_BYTES, GFP_KERNEL);
	if (!text)
		return -ENOMEM;

	len = mflow_file_read(mflow_file_number(file), text->text,
			      MFLOW_READ_BYTES);
	if (len < 0) {
		kvfree(text);
		return len;
	}
	text->len = len;
	file->private_data = text;
	return 0;
}

static int mflow_file_release(struct inode *inode, struct file *file)
{
	kvfree(file->private_data);
	return 0;
}

static ssize_t mflow_file_do_read(struct file *file, char __user *to,
				  size_t count, loff_t *pos)
{
	const struct mflow_text *text = file->private_data;

	return simple_read_from_buffer(to, count, pos, text->text, text->len);
}

static ssize_t mflow_file_do_write(struct file *file, const char __user *from,
				   size_t count, loff_t *pos)
{
	char *text;
	int err;

	if (count > MFLOW_WRITE_BYTES)
		return -EINVAL;

	text = memdup_user_nul(from, count);
	if (IS_ERR(text))
		return PTR_ERR(text);

	err = mflow_file_write(mflow_file_number(file), text, count, NULL, 0);
	kfree(text);
	return err ?: count;
}

static const struct file_operations mflow_file_ops = {
	.owner		= THIS_MODULE,
	.open		= mflow_file_open,
	.release	= mflow_file_release,
	.read		= mflow_file_do_read,
	.write		= mflow_file_do_write,
	.llseek		= default_llseek,
};

int mflow_files_create(void)
{
	mflow_dir = debugfs_create_dir("mflow", NULL);
	return PTR_ERR_OR_ZERO(mflow_dir);
}

int mflow_file_add(const char *name, umode_t mode, unsigned int file)
{
	struct dentry *dentry =
		debugfs_create_file(name, mode, mflow_dir,
				    (void *)(unsigned long)file,
				    &mflow_file_ops);

	return PTR_ERR_OR_ZERO(dentry);
}

void mflow_files_remove(void)
{
	debugfs_remove(mflow_dir);
}

void mflow_complain(const char *text, unsigned int len)
{
	pr_warn_ratelimited("mflow: %.*s\n", len, text);
}
