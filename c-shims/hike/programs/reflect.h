/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Answers test packets for this host: a STAMP reflector without state and without authentication (RFC 8762, 4.3). A packet becomes its own
 * answer, and programs behind this one send it: `send-back` to where it came from, or `enc` and a program that forwards on a path.
 *
 * Extensions behind the base packet stay as they are. Their senders have set the bit that says that nobody has understood them (RFC 8972,
 * 4). A sender of TWAMP Light (RFC 5357, appendix I) whose packets are as long gets the answer that it knows.
 *
 * Anybody can send a packet that seems to come from another reflector, or from a service that sends all back. Nothing here becomes a
 * question to such a one for long: what has a time of now where only answers have times is not answered, and of all others each CPU
 * answers some in a second.
 */
#include <linux/udp.h>

#include "../forwarding/tell.h"

/* The port of reflectors: RFC 8762, 4.1. */
#define HIKE_STAMP_PORT 862
#define HIKE_STAMP_HOP_LIMIT 255
/* Bit S of an error estimate: the clock follows UTC. */
#define HIKE_STAMP_SYNCHRONIZED 0x8000
/* Bit Z of an error estimate: times have the format of PTP, else that of NTP. */
#define HIKE_STAMP_PTP 0x4000
/* From 1900, where NTP begins, to 1970. */
#define HIKE_NTP_S 2208988800ULL
/* Times that differ by less are those of one round trip, even where two people have set the clocks. */
#define HIKE_NEAR_S 60

/* A test packet without authentication (RFC 8762, 4.2.1 and 4.3.1, with the session of RFC 8972, 3). Senders leave the second half zero. */
struct hike_stamp {
	__be32 sequence;
	__be32 sent[2];
	__be16 error;
	__be16 session;
	__be32 received[2];
	__be32 sender_sequence;
	__be32 sender_sent[2];
	__be16 sender_error;
	__u16 zero;
	__u8 sender_hop_limit;
	__u8 zeros[3];
};

#define HIKE_STAMP_WORDS (sizeof(struct hike_stamp) / sizeof(__u32))

/* The clock of this host, as user space knows it. */
HIKE_MAP(stamp_clock, BPF_MAP_TYPE_ARRAY, 1, sizeof(__u32), sizeof(struct hike_stamp_clock), 0);

/* The test packets that each CPU may still answer. */
HIKE_MAP(reflecting, BPF_MAP_TYPE_PERCPU_ARRAY, 1, sizeof(__u32), sizeof(struct hike_credit), 0);

/* Returns whether a field may have the seconds of a time around this one. */
static __always_inline bool hike_is_near(__be32 field, __u32 s)
{
	return bpf_ntohl(field) - (s - HIKE_NEAR_S) <= 2 * HIKE_NEAR_S;
}

/*
 * Returns whether a test packet is an answer, by the times in its second half, which are zero in questions of STAMP, and padding in those of TWAMP.
 * An answer of this host that comes back as it is has been received here, and in one of another reflector is when its question was sent.
 */
static __always_inline bool hike_has_answer_times(const struct hike_stamp *stamp, __u64 tai_ns,
						  const struct hike_stamp_clock *clock)
{
	__u32 ptp_s = tai_ns / 1000000000, ntp_s = ptp_s + HIKE_NTP_S - clock->tai_ahead_s;

	return hike_is_near(stamp->received[0], ptp_s) || hike_is_near(stamp->received[0], ntp_s) ||
	       hike_is_near(stamp->sender_sent[0], ptp_s) ||
	       hike_is_near(stamp->sender_sent[0], ntp_s);
}

/* Returns the error estimate of answers. Without the offset between TAI and UTC, times of PTP are wrong by it. */
static __always_inline __be16 hike_error(const struct hike_stamp_clock *clock, bool is_ptp)
{
	__u16 error = clock->error;

	if (is_ptp && !clock->tai_ahead_s)
		error &= ~HIKE_STAMP_SYNCHRONIZED;
	return bpf_htons(error | (is_ptp ? HIKE_STAMP_PTP : 0));
}

/* Writes a time of the TAI clock. */
static __always_inline void hike_write_time(__be32 to[2], __u64 tai_ns, const struct hike_stamp_clock *clock,
					    bool is_ptp)
{
	const __u64 ns_per_s = 1000000000;
	__u64 s = tai_ns / ns_per_s, ns = tai_ns % ns_per_s;

	if (!is_ptp) {
		s += HIKE_NTP_S - clock->tai_ahead_s;
		ns = (ns << 32) / ns_per_s;
	}
	to[0] = bpf_htonl(s);
	to[1] = bpf_htonl(ns);
}

/*
 * Returns the UDP header of a packet to reflectors, if nothing is between it and the IP header; else NULL. Both addresses become whole
 * keys.
 */
static __always_inline struct udphdr *hike_to_reflectors(const struct hike_context *context,
							 const struct hike_packet *packet,
							 struct hike_prefix *source,
							 struct hike_prefix *destination)
{
	void *ip = hike_ip(context, packet), *end = hike_data_end(context);
	struct ipv6hdr *ip6 = ip;
	struct iphdr *ip4 = ip;
	struct udphdr *udp;

	if (packet->version == 6) {
		udp = (void *)(ip6 + 1);
		if ((void *)(udp + 1) > end || ip6->nexthdr != IPPROTO_UDP)
			return NULL;
		hike_copy_address(source->address, &ip6->saddr);
		hike_copy_address(destination->address, &ip6->daddr);
	} else {
		udp = (void *)(ip4 + 1);
		if ((void *)(udp + 1) > end || ip4->ihl != 5 || ip4->protocol != IPPROTO_UDP ||
		    ip4->frag_off & bpf_htons(HIKE_IS_FRAGMENT4))
			return NULL;
		HIKE_COPY(__u32, source->address, &ip4->saddr);
		HIKE_COPY(__u32, destination->address, &ip4->daddr);
	}
	hike_whole(source, packet->version);
	hike_whole(destination, packet->version);
	return udp->dest == bpf_htons(HIKE_STAMP_PORT) ? udp : NULL;
}

/* Returns whether such a packet may be answered: it is whole, and so is its answer. The source has been looked up: it is not this host. */
static __always_inline bool hike_may_reflect(const struct hike_context *context, const struct hike_packet *packet,
					     const struct udphdr *udp)
{
	const void *ip = hike_ip(context, packet), *end = hike_data_end(context);
	__u32 udp_bytes = bpf_ntohs(udp->len), ip_bytes, header_bytes;
	const struct ipv6hdr *ip6 = ip;
	const struct iphdr *ip4 = ip;

	/* Another reflector would answer the answer. */
	if (!udp->source || udp->source == bpf_htons(HIKE_STAMP_PORT))
		return false;
	if (packet->version == 6) {
		if ((const void *)(ip6 + 1) > end || !hike_routable6(&ip6->saddr) || !udp->check)
			return false;
		ip_bytes = hike_whole_bytes6(context, packet, ip6, end);
		header_bytes = sizeof(*ip6);
	} else {
		if ((const void *)(ip4 + 1) > end || !hike_routable4(ip4->saddr))
			return false;
		ip_bytes = hike_whole_bytes4(context, packet, ip4, end);
		header_bytes = sizeof(*ip4);
	}
	return udp_bytes >= sizeof(*udp) + sizeof(struct hike_stamp) &&
	       header_bytes + udp_bytes <= ip_bytes && !hike_in_buffers(context);
}

/* Swaps the addresses and sets the hop limit to 255, from which `enc` takes one as a router does. Returns the packet's own hop limit. */
static __always_inline __u8 hike_turn_addresses(void *ip, const void *end, const struct hike_prefix *source,
						const struct hike_prefix *destination, __u8 version)
{
	struct ipv6hdr *ip6 = ip;
	struct iphdr *ip4 = ip;
	__u8 hop_limit;

	if (version == 6) {
		if ((void *)(ip6 + 1) > end)
			return 0;
		hop_limit = ip6->hop_limit;
		ip6->hop_limit = HIKE_STAMP_HOP_LIMIT;
		hike_copy_address(&ip6->saddr, destination->address);
		hike_copy_address(&ip6->daddr, source->address);
	} else {
		if ((void *)(ip4 + 1) > end)
			return 0;
		hop_limit = ip4->ttl;
		ip4->ttl = HIKE_STAMP_HOP_LIMIT;
		/* Of the two bytes of the time to live and of the protocol. */
		ip4->check = hike_changed_checksum(ip4->check, bpf_htons((__u16)hop_limit << 8),
						   bpf_htons(HIKE_STAMP_HOP_LIMIT << 8));
		HIKE_COPY(__u32, &ip4->saddr, destination->address);
		HIKE_COPY(__u32, &ip4->daddr, source->address);
	}
	return hop_limit;
}

static __noinline int hike_reflect(struct hike_context *context, struct hike_packet *packet)
{
	__u64 received_ns = bpf_ktime_get_tai_ns();
	struct hike_prefix source = {}, destination = {};
	const struct hike_stamp_clock *clock;
	__u32 before[HIKE_STAMP_WORDS];
	struct hike_credit *credit;
	struct hike_stamp *stamp;
	struct udphdr *udp;
	const void *end;
	__u8 hop_limit;
	__u32 zero = 0;
	bool is_ptp;
	__u16 port;
	__s64 sum;

	udp = hike_to_reflectors(context, packet, &source, &destination);
	if (!udp || !hike_is_own_alone(packet, &destination))
		return HIKE_NO_TEST;
	clock = bpf_map_lookup_elem(&stamp_clock, &zero);
	credit = bpf_map_lookup_elem(&reflecting, &zero);
	if (!clock || !credit || hike_is_own(packet, &source) || !hike_may_reflect(context, packet, udp))
		return HIKE_TEST_REFUSED;
	stamp = (void *)(udp + 1);
	end = hike_data_end(context);
	if ((void *)(stamp + 1) > end || hike_has_answer_times(stamp, received_ns, clock))
		return HIKE_TEST_REFUSED;
	if (!hike_may_answer(credit, HIKE_REFLECTED_PER_S, HIKE_REFLECTED_AT_ONCE))
		return HIKE_TEST_TOO_OFTEN;

	hop_limit = hike_turn_addresses(hike_ip(context, packet), end, &source, &destination, packet->version);
	port = udp->source;
	udp->source = udp->dest;
	udp->dest = port;
#pragma unroll
	for (__u32 i = 0; i < HIKE_STAMP_WORDS; i++)
		before[i] = *((const __u32 *)stamp + i);
	is_ptp = stamp->error & bpf_htons(HIKE_STAMP_PTP);
	stamp->sender_sequence = stamp->sequence;
	stamp->sender_sent[0] = stamp->sent[0];
	stamp->sender_sent[1] = stamp->sent[1];
	stamp->sender_error = stamp->error;
	stamp->zero = 0;
	*(__be32 *)&stamp->sender_hop_limit = bpf_htonl((__u32)hop_limit << 24);
	stamp->error = hike_error(clock, is_ptp);
	hike_write_time(stamp->received, received_ns, clock, is_ptp);
	hike_write_time(stamp->sent, bpf_ktime_get_tai_ns(), clock, is_ptp);
	/* Addresses and ports have only changed places. A checksum that was wrong stays wrong. */
	if (udp->check) {
		sum = bpf_csum_diff(before, sizeof(before), (__be32 *)stamp, sizeof(*stamp),
				    (__u16)~udp->check);
		udp->check = hike_checksum((__u32)sum);
		/* 0 would mean that there is none. */
		if (!udp->check)
			udp->check = 0xffff;
	}
	packet->device_flags |= HIKE_IS_ANSWER;
	return HIKE_NEXT;
}
