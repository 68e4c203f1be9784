/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lists of datagrams, which pass the stack as one packet.
 */
#ifndef _MFLOW_LIST_H
#define _MFLOW_LIST_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>

bool mflow_is_list(const struct sk_buff *skb);
void mflow_list_note(struct sk_buff *skb);
void mflow_list_follow(struct sk_buff *skb, u8 family);
bool mflow_list_is_written(const struct sk_buff *skb, u8 family);
void mflow_probe_note(const struct sk_buff *skb, unsigned int slot);
bool mflow_probe_is_written(const struct sk_buff *skb, unsigned int slot, u8 family);
void mflow_pass_normal(struct napi_struct *napi);
bool mflow_last_behind_held(struct napi_struct *napi);

#endif /* _MFLOW_LIST_H */
