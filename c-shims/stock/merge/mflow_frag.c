// SPDX-License-Identifier: GPL-2.0
/*
 * Fragments of one datagram that come from several CPUs. IPv4 takes an identifier for one that has come again when as
 * many fragments of the same sender have come meanwhile as net.ipv4.ipfrag_max_dist says: 64 by default. Lanes run
 * further apart, so while splitting is on, all namespaces have MFLOW_FRAG_DIST.
 */

#include <net/inet_frag.h>
#include <net/mflow.h>
#include <net/net_namespace.h>

#include "../mflow_stock.h"

/* Returns what is to be given to mflow_frag_narrow(). 0 stands for no check at all, and a distance beyond ours is as good. */
int mflow_frag_widen(struct net *net)
{
	struct fqdir *fqdir = net->ipv4.fqdir;
	int now = READ_ONCE(fqdir->max_dist);

	if (now <= 0 || now >= (int)MFLOW_FRAG_DIST)
		return 0;
	WRITE_ONCE(fqdir->max_dist, MFLOW_FRAG_DIST);
	return now;
}

/* Restores the distance, unless somebody has written another one. @was is 0 where nothing was changed. */
void mflow_frag_narrow(struct net *net, int was)
{
	struct fqdir *fqdir = net->ipv4.fqdir;

	if (was && READ_ONCE(fqdir->max_dist) == (int)MFLOW_FRAG_DIST)
		WRITE_ONCE(fqdir->max_dist, was);
}
