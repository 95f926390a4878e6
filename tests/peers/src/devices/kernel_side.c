/*
 * The kernel's side of a device port alone: system calls on a tap, an AF_PACKET socket or AF_XDP rings, without a switch.
 * Its rate is the bound of every switch that uses the same interface in the same way. It also makes the other end of a
 * measurement: interfaces that drop all packets or send them back, and a source.
 *
 *     kernel_side drop IFACE...             drops what arrives at each interface
 *     kernel_side redirect FROM TO...       sends what arrives at FROM out of TO, for each pair
 *         Both print `ready`, and run until standard input ends. For each line of input, they print a line
 *         `NANOSECONDS PACKETS BYTES` for each interface: what has arrived there so far.
 *     kernel_side tap-out IFACE LEN SECS    writev to a tap
 *     kernel_side tap-loop A B LEN SECS     writev to tap A, readv from tap B, 256 at a time
 *     kernel_side packet-out IFACE LEN SECS sendmmsg to an AF_PACKET socket, 64 at a time
 *     kernel_side xdp-out IFACE LEN SECS    AF_XDP transmit ring, 32 packets for each sendto
 *     kernel_side xdp-in IFACE SECS         AF_XDP receive ring
 *     kernel_side xdp-loop A B LEN SECS     both: transmit ring of A, receive ring of B
 *     kernel_side xdp-node IFACE BATCH LOOP SECS
 *                                           AF_XDP receive ring, and a node that swaps the addresses where they came: one
 *                                           of the loops of the experiment `cold`, on batches of this many packets
 *         These print a line of JSON: million packets a second, nanoseconds a packet of each direction.
 *
 * Packets come from as many buffers as a guest's ring has, and go to as many. So memory is as cold as a guest's, and bytes
 * that have come by AF_XDP are copied once, as every switch has to.
 *
 * LEN is a frame's length without the Ethernet checksum. `segments` is a TCP packet of 64 KiB that is still to be segmented
 * (taps only).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/if_xdp.h>
#include <linux/virtio_net.h>

#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "../../../../crates/lab/src/experiments/cold/loops.c"

#define LONGEST 65549	/* an Ethernet header and an IP packet of 65535 bytes */
#define SEGMENTS 65214	/* 45 segments of 1448 bytes, and their headers */
#define MSS 1448
#define BATCH 256
#define BUFFERS 1024	/* of frames; of packets that are still to be segmented, there are fewer in a ring */
#define LARGE_BUFFERS 128
#define PACKET_BATCH 64
#define XDP_BATCH 32	/* what one sendto sends in copy mode */
#define FRAMES 4096
#define FRAME_LEN 2048
#define RING 2048
#define HEADER sizeof(struct virtio_net_hdr_v1)
#define TCX_INGRESS 46	/* BPF_TCX_INGRESS, which older headers lack */

static volatile sig_atomic_t over;
static double seconds;

static void alarmed(int signal)
{
	(void)signal;
	over = 1;
}

static void fail(const char *what)
{
	fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static unsigned int index_of(const char *iface)
{
	unsigned int index = if_nametoindex(iface);

	if (index == 0)
		fail(iface);
	return index;
}

/* Buffers with packets of one length. Directly before a frame, there is a header for the kernel. */
struct packets {
	size_t len, stride;
	unsigned int count, next;
	unsigned char *buffers;
};

static struct packets buffers(size_t len)
{
	struct packets packets = {.len = len, .stride = 2048, .count = BUFFERS};

	if (len + HEADER > packets.stride) {
		packets.stride = 68 << 10;
		packets.count = LARGE_BUFFERS;
	}
	/* In pages of 2 MiB, if there are any, like the memory of guests that are measured. */
	size_t size = packets.stride * packets.count, align = 2 << 20;
	packets.buffers = aligned_alloc(align, (size + align - 1) / align * align);
	if (packets.buffers == NULL)
		fail("memory");
	madvise(packets.buffers, size, MADV_HUGEPAGE);
	memset(packets.buffers, 0, size);
	return packets;
}

/* Returns the next buffer: the header, and the frame behind it. */
static unsigned char *next(struct packets *packets)
{
	unsigned char *buffer = packets->buffers + packets->stride * packets->next;

	packets->next = packets->next + 1 < packets->count ? packets->next + 1 : 0;
	return buffer;
}

static void put16(unsigned char *at, unsigned int value)
{
	at[0] = (unsigned char)(value >> 8);
	at[1] = (unsigned char)value;
}

/* Makes buffers with UDP datagrams over IPv4, or with TCP packets that are still to be segmented. */
static struct packets make(const char *text)
{
	bool segments = strcmp(text, "segments") == 0;
	size_t len = segments ? SEGMENTS : strtoul(text, NULL, 10);

	if (len < 60 || len > LONGEST) {
		fprintf(stderr, "error: the length %s is out of range: use 60 to %d, or segments\n", text, LONGEST);
		exit(2);
	}
	struct packets packets = buffers(len);
	struct virtio_net_hdr_v1 header = {0};
	unsigned char *frame = packets.buffers + HEADER, *ip = frame + ETH_HLEN, *l4 = ip + 20;
	static const unsigned char start[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45};
	static const unsigned char addresses[] = {198, 18, 0, 1, 198, 18, 0, 2};

	memcpy(frame, start, sizeof(start));
	put16(ip + 2, (unsigned int)len - ETH_HLEN);
	ip[8] = 64;
	ip[9] = segments ? IPPROTO_TCP : IPPROTO_UDP;
	memcpy(ip + 12, addresses, sizeof(addresses));
	unsigned int sum = 0;
	for (int at = 0; at < 20; at += 2)
		sum += (unsigned int)ip[at] << 8 | ip[at + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	put16(ip + 10, ~(sum + (sum >> 16)));
	put16(l4, 1000);
	put16(l4 + 2, 2000);
	if (segments) {
		l4[12] = 0x50;
		l4[13] = 0x10; /* ACK */
		header.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
		header.csum_start = ETH_HLEN + 20;
		header.csum_offset = 16;
		header.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
		header.gso_size = MSS;
		header.hdr_len = ETH_HLEN + 40;
	} else {
		put16(l4 + 4, (unsigned int)len - ETH_HLEN - 20); /* a checksum of 0: none */
	}
	memcpy(packets.buffers, &header, HEADER);
	for (unsigned int n = 1; n < packets.count; n++)
		memcpy(packets.buffers + n * packets.stride, packets.buffers, HEADER + len);
	return packets;
}

static void report(const char *what, uint64_t packets, uint64_t bytes, uint64_t took, uint64_t out_ns, uint64_t in_ns,
		   uint64_t refused)
{
	double count = packets > 0 ? (double)packets : 1.0;

	printf("{\"what\": \"%s\", \"mpps\": %.6f, \"gbit_per_s\": %.6f, \"packets\": %llu, \"out_ns\": %.2f, \"in_ns\": %.2f, "
	       "\"refused\": %llu}\n",
	       what, (double)packets * 1e3 / (double)took, (double)bytes * 8 / (double)took, (unsigned long long)packets,
	       (double)out_ns / count, (double)in_ns / count, (unsigned long long)refused);
}

/* Taps. */

static int tap(const char *name)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	int size = HEADER, fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		fail("/dev/net/tun");
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (ioctl(fd, TUNSETIFF, &request) != 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) != 0 ||
	    ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
		fail(name);
	int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq up = {.ifr_flags = 0};
	strncpy(up.ifr_name, name, IFNAMSIZ - 1);
	if (control < 0 || ioctl(control, SIOCGIFFLAGS, &up) != 0)
		fail(name);
	up.ifr_flags |= IFF_UP;
	if (ioctl(control, SIOCSIFFLAGS, &up) != 0)
		fail(name);
	close(control);
	return fd;
}

/* Prints `open`, and waits for a line of input: by then the caller has set up the other end. Then the time begins. */
static void meet(void)
{
	char line[16];
	struct itimerspec time = {.it_value = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
	timer_t timer;

	puts("open");
	fflush(stdout);
	if (fgets(line, sizeof(line), stdin) == NULL)
		exit(0);
	signal(SIGALRM, alarmed);
	if (timer_create(CLOCK_MONOTONIC, NULL, &timer) != 0 || timer_settime(timer, 0, &time, NULL) != 0)
		fail("timer");
}

static uint64_t write_packets(int fd, struct packets *packets, int count, uint64_t *refused)
{
	uint64_t written = 0;

	for (int n = 0; n < count; n++) {
		struct iovec part = {next(packets), HEADER + packets->len};

		if (writev(fd, &part, 1) > 0)
			written++;
		else
			(*refused)++;
	}
	return written;
}

static uint64_t read_packets(int fd, struct packets *into, size_t *bytes)
{
	struct iovec part = {next(into), into->stride};
	uint64_t packets = 0;
	ssize_t len;

	while ((len = readv(fd, &part, 1)) > 0) {
		packets++;
		*bytes += (size_t)len - HEADER;
		part.iov_base = next(into);
	}
	return packets;
}

static void tap_out(char **args)
{
	int fd = tap(args[0]);
	struct packets sent = make(args[1]);
	uint64_t packets = 0, refused = 0;

	meet();
	uint64_t start = now();
	while (!over)
		packets += write_packets(fd, &sent, BATCH, &refused);
	uint64_t took = now() - start;
	report("tap-out", packets, packets * sent.len, took, took, 0, refused);
}

static void tap_loop(char **args)
{
	int from = tap(args[0]), to = tap(args[1]);
	struct packets sent = make(args[2]), into = buffers(sent.len);
	uint64_t packets = 0, refused = 0, out = 0, in = 0;
	size_t bytes = 0;

	meet();
	uint64_t start = now(), at = start;
	while (!over) {
		write_packets(from, &sent, BATCH, &refused);
		uint64_t between = now();
		packets += read_packets(to, &into, &bytes);
		uint64_t end = now();
		out += between - at;
		in += end - between;
		at = end;
	}
	report("tap-loop", packets, bytes, at - start, out, in, refused);
}

/* AF_PACKET sockets. */

static int packet_socket(const char *name)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, space = 4 << 20;
	struct sockaddr_ll at = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index_of(name)};

	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
	    setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0)
		fail("AF_PACKET socket");
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &space, sizeof(space));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &space, sizeof(space));
	setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0)
		fail(name);
	return fd;
}

static void packet_out(char **args)
{
	struct packets sent = make(args[1]);
	struct mmsghdr messages[PACKET_BATCH] = {0};
	/* The socket's header is shorter. */
	struct iovec parts[2] = {{sent.buffers, sizeof(struct virtio_net_hdr)}, {sent.buffers + HEADER, sent.len}};
	uint64_t packets = 0, refused = 0;
	int fd = packet_socket(args[0]);

	for (int n = 0; n < PACKET_BATCH; n++)
		messages[n].msg_hdr = (struct msghdr){.msg_iov = parts, .msg_iovlen = 2};
	meet();
	uint64_t start = now();
	while (!over) {
		int count = sendmmsg(fd, messages, PACKET_BATCH, 0);

		if (count > 0)
			packets += (uint64_t)count;
		else
			refused++;
	}
	uint64_t took = now() - start;
	report("packet-out", packets, packets * sent.len, took, took, 0, refused);
}

/* AF_XDP. */

static int bpf(int command, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int load(enum bpf_prog_type type, const struct bpf_insn *code, unsigned int count)
{
	static char log[4096];
	union bpf_attr attr = {.prog_type = type};

	attr.insns = (uint64_t)(uintptr_t)code;
	attr.insn_cnt = count;
	attr.license = (uint64_t)(uintptr_t) "GPL";
	attr.log_buf = (uint64_t)(uintptr_t)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	int fd = bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0) {
		fprintf(stderr, "%s", log);
		fail("the program is refused");
	}
	return fd;
}

static void attach(int program, const char *iface, int where)
{
	union bpf_attr attr = {0};

	attr.link_create.prog_fd = (uint32_t)program;
	attr.link_create.target_ifindex = index_of(iface);
	attr.link_create.attach_type = (uint32_t)where;
	/* The link ends with this process. */
	if (bpf(BPF_LINK_CREATE, &attr) < 0)
		fail(iface);
}

#define MOVE(dst, value) ((struct bpf_insn){BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value})
#define CALL(function) ((struct bpf_insn){BPF_JMP | BPF_CALL, 0, 0, 0, function})
#define EXIT ((struct bpf_insn){BPF_JMP | BPF_EXIT, 0, 0, 0, 0})

struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct xdp {
	int fd;
	unsigned char *umem;
	struct ring rx, tx, fill, completion;
	uint64_t free[FRAMES];
	unsigned int free_count;
};

static struct ring map(int fd, const struct xdp_ring_offset *offset, size_t entry, off_t page)
{
	unsigned char *at = mmap(NULL, offset->desc + RING * entry, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, page);

	if (at == MAP_FAILED)
		fail("AF_XDP ring");
	return (struct ring){(uint32_t *)(at + offset->producer), (uint32_t *)(at + offset->consumer), at + offset->desc};
}

static uint32_t filled(const struct ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - __atomic_load_n(ring->consumer, __ATOMIC_ACQUIRE);
}

static void give(struct ring *ring, uint64_t address)
{
	uint32_t at = *ring->producer;

	((uint64_t *)ring->entries)[at % RING] = address;
	__atomic_store_n(ring->producer, at + 1, __ATOMIC_RELEASE);
}

static struct xdp *xdp_open(const char *iface)
{
	struct xdp *xdp = calloc(1, sizeof(*xdp));
	struct xdp_umem_reg umem = {.len = FRAMES * FRAME_LEN, .chunk_size = FRAME_LEN};
	struct xdp_mmap_offsets offsets;
	socklen_t len = sizeof(offsets);
	int ring = RING;

	xdp->fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	xdp->umem = mmap(NULL, umem.len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	umem.addr = (uint64_t)(uintptr_t)xdp->umem;
	if (xdp->fd < 0 || setsockopt(xdp->fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)) != 0 ||
	    setsockopt(xdp->fd, SOL_XDP, XDP_UMEM_FILL_RING, &ring, sizeof(ring)) != 0 ||
	    setsockopt(xdp->fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &ring, sizeof(ring)) != 0 ||
	    setsockopt(xdp->fd, SOL_XDP, XDP_RX_RING, &ring, sizeof(ring)) != 0 ||
	    setsockopt(xdp->fd, SOL_XDP, XDP_TX_RING, &ring, sizeof(ring)) != 0 ||
	    getsockopt(xdp->fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &len) != 0)
		fail("AF_XDP socket");
	xdp->rx = map(xdp->fd, &offsets.rx, sizeof(struct xdp_desc), XDP_PGOFF_RX_RING);
	xdp->tx = map(xdp->fd, &offsets.tx, sizeof(struct xdp_desc), XDP_PGOFF_TX_RING);
	xdp->fill = map(xdp->fd, &offsets.fr, sizeof(uint64_t), XDP_UMEM_PGOFF_FILL_RING);
	xdp->completion = map(xdp->fd, &offsets.cr, sizeof(uint64_t), XDP_UMEM_PGOFF_COMPLETION_RING);
	for (uint64_t n = 0; n < RING; n++)
		give(&xdp->fill, n * FRAME_LEN);
	for (uint64_t n = RING; n < FRAMES; n++)
		xdp->free[xdp->free_count++] = n * FRAME_LEN;
	struct sockaddr_xdp at = {.sxdp_family = AF_XDP, .sxdp_ifindex = index_of(iface), .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
	/* The kernel frees the queue of a program that has just ended a moment later. */
	for (int tries = 0; bind(xdp->fd, (struct sockaddr *)&at, sizeof(at)) != 0; tries++) {
		if (errno != EBUSY || tries == 200)
			fail(iface);
		usleep(10000);
	}
	return xdp;
}

/* Directs what arrives at an interface to a socket. */
static void xdp_steal(const struct xdp *xdp, const char *iface)
{
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_XSKMAP};
	uint32_t key = 0, value = (uint32_t)xdp->fd;

	attr.key_size = attr.value_size = 4;
	attr.max_entries = 1;
	int map = bpf(BPF_MAP_CREATE, &attr);
	if (map < 0)
		fail("XSKMAP");
	memset(&attr, 0, sizeof(attr));
	attr.map_fd = (uint32_t)map;
	attr.key = (uint64_t)(uintptr_t)&key;
	attr.value = (uint64_t)(uintptr_t)&value;
	if (bpf(BPF_MAP_UPDATE_ELEM, &attr) != 0)
		fail("XSKMAP");
	const struct bpf_insn code[] = {
		{BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map},
		{0, 0, 0, 0, 0},
		MOVE(BPF_REG_2, 0),
		MOVE(BPF_REG_3, XDP_PASS),
		CALL(BPF_FUNC_redirect_map),
		EXIT,
	};
	attach(load(BPF_PROG_TYPE_XDP, code, sizeof(code) / sizeof(code[0])), iface, BPF_XDP);
}

static void xdp_send(struct xdp *xdp, struct packets *from, uint64_t *packets, uint64_t *refused)
{
	uint32_t done = filled(&xdp->completion), at = *xdp->completion.consumer;

	for (uint32_t n = 0; n < done; n++)
		xdp->free[xdp->free_count++] = ((uint64_t *)xdp->completion.entries)[(at + n) % RING];
	__atomic_store_n(xdp->completion.consumer, at + done, __ATOMIC_RELEASE);
	uint32_t put = *xdp->tx.producer, space = RING - filled(&xdp->tx);
	for (int n = 0; n < XDP_BATCH && xdp->free_count > 0 && space > 0; n++, space--) {
		uint64_t address = xdp->free[--xdp->free_count];

		memcpy(xdp->umem + address, next(from) + HEADER, from->len);
		((struct xdp_desc *)xdp->tx.entries)[put++ % RING] = (struct xdp_desc){.addr = address, .len = (uint32_t)from->len};
		(*packets)++;
	}
	__atomic_store_n(xdp->tx.producer, put, __ATOMIC_RELEASE);
	if (sendto(xdp->fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0)
		(*refused)++;
}

static uint64_t xdp_receive(struct xdp *xdp, struct packets *into, uint64_t *bytes)
{
	uint32_t count = filled(&xdp->rx), at = *xdp->rx.consumer;

	if (count > BATCH)
		count = BATCH;
	for (uint32_t n = 0; n < count; n++) {
		const struct xdp_desc *desc = &((struct xdp_desc *)xdp->rx.entries)[(at + n) % RING];

		*bytes += desc->len;
		memcpy(next(into) + HEADER, xdp->umem + desc->addr, desc->len);
		give(&xdp->fill, desc->addr & ~(uint64_t)(FRAME_LEN - 1));
	}
	__atomic_store_n(xdp->rx.consumer, at + count, __ATOMIC_RELEASE);
	return count;
}

static void xdp_out(char **args)
{
	struct xdp *xdp = xdp_open(args[0]);
	struct packets sent = make(args[1]);
	uint64_t packets = 0, refused = 0;

	meet();
	uint64_t start = now();
	while (!over)
		xdp_send(xdp, &sent, &packets, &refused);
	uint64_t took = now() - start;
	report("xdp-out", packets, packets * sent.len, took, took, 0, refused);
}

static void xdp_in(char **args)
{
	struct xdp *xdp = xdp_open(args[0]);
	struct packets into = buffers(0);
	uint64_t packets = 0, bytes = 0, busy = 0;

	xdp_steal(xdp, args[0]);
	meet();
	uint64_t start = now(), at = start;
	while (!over) {
		uint64_t count = xdp_receive(xdp, &into, &bytes), end = now();

		packets += count;
		busy += count > 0 ? end - at : 0;
		at = end;
	}
	report("xdp-in", packets, bytes, at - start, 0, busy, 0);
}

/* Returns the time-stamp counter once all instructions before are done, and their stores are in the cache. */
static uint64_t cycles_when_done(void)
{
#ifdef __x86_64__
	_mm_mfence();
	_mm_lfence();
	uint64_t cycles = __rdtsc();
	_mm_lfence();
	return cycles;
#else
	return now();
#endif
}

static const struct node_loop {
	const char *name;
	void (*run)(uint8_t *lines, const uint32_t *packets, const uint32_t *heads, size_t n, size_t distance);
	size_t distance;
} node_loops[] = {
	{"none", cold_one, 0},	    {"4-ahead", cold_one, 4},	  {"two-at-once-none", cold_two, 0},
	{"two-at-once", cold_two, 2}, {"four-at-once-none", cold_four, 0}, {"four-at-once", cold_four, 4},
};

static const struct node_loop *node_loop(const char *name)
{
	for (size_t n = 0; n < sizeof(node_loops) / sizeof(node_loops[0]); n++)
		if (strcmp(node_loops[n].name, name) == 0)
			return &node_loops[n];
	fprintf(stderr, "error: there is no loop %s\n", name);
	exit(2);
}

#define HEAD_AT 3	/* lines */

/* Writes the words of a packet into the headroom in front of it. Returns the index of their line. */
static uint32_t enter(struct xdp *xdp, uint64_t address)
{
	uint64_t line = address / LINE - HEAD_AT;
	word *words = (word *)(xdp->umem + line * LINE);

	if (address % LINE != 0) {
		fprintf(stderr, "error: a frame at %llu does not begin on a line\n", (unsigned long long)address);
		exit(1);
	}
	words[0] = HEAD_AT;
	words[1] = (uint32_t)line;
	return (uint32_t)line;
}

static void xdp_node(char **args)
{
	struct xdp *xdp = xdp_open(args[0]);
	size_t batch = strtoul(args[1], NULL, 10);
	const struct node_loop *loop = node_loop(args[2]);
	uint32_t firsts[BATCH], heads[BATCH];
	uint64_t packets = 0, counted = 0, cycles = 0;

	if (batch < 1 || batch > BATCH) {
		fprintf(stderr, "error: a batch of %s packets is out of range: use 1 to %d\n", args[1], BATCH);
		exit(2);
	}
	xdp_steal(xdp, args[0]);
	meet();
	uint64_t start = now();
	while (!over) {
		uint32_t at = *xdp->rx.consumer;

		if (filled(&xdp->rx) < batch)
			continue;
		for (size_t n = 0; n < batch; n++) {
			firsts[n] = enter(xdp, ((struct xdp_desc *)xdp->rx.entries)[(at + n) % RING].addr);
			heads[n] = firsts[n] + HEAD_AT;
		}
		uint64_t began = cycles_when_done(), nothing = cycles_when_done();
		loop->run(xdp->umem, firsts, heads, batch, loop->distance);
		uint64_t took = cycles_when_done() - nothing, costs = nothing - began;
		/* A longer batch was interrupted. */
		if (took < 1000 * batch + 10000) {
			counted += batch;
			cycles += took > costs ? took - costs : 0;
		}
		for (size_t n = 0; n < batch; n++) {
			static const unsigned char swapped_start[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
			const unsigned char *head = xdp->umem + (uint64_t)heads[n] * LINE;

			if (memcmp(head, swapped_start, sizeof(swapped_start)) != 0) {
				fprintf(stderr, "error: the node did not swap the addresses of a packet\n");
				exit(1);
			}
			give(&xdp->fill, (uint64_t)firsts[n] * LINE & ~(uint64_t)(FRAME_LEN - 1));
		}
		__atomic_store_n(xdp->rx.consumer, at + (uint32_t)batch, __ATOMIC_RELEASE);
		packets += batch;
	}
	uint64_t took = now() - start;
	printf("{\"what\": \"xdp-node\", \"mpps\": %.6f, \"packets\": %llu, \"node_cycles\": %.3f}\n",
	       (double)packets * 1e3 / (double)took, (unsigned long long)packets,
	       counted > 0 ? (double)cycles / (double)counted : 0.0);
}

static void xdp_loop(char **args)
{
	struct xdp *from = xdp_open(args[0]), *to = xdp_open(args[1]);
	struct packets sent = make(args[2]), into = buffers(0);
	uint64_t packets = 0, count = 0, bytes = 0, refused = 0, out = 0, in = 0;

	xdp_steal(to, args[1]);
	meet();
	uint64_t start = now(), at = start;
	while (!over) {
		xdp_send(from, &sent, &count, &refused);
		uint64_t between = now();
		packets += xdp_receive(to, &into, &bytes);
		uint64_t end = now();
		out += between - at;
		in += end - between;
		at = end;
	}
	report("xdp-loop", packets, bytes, at - start, out, in, refused);
}

/* The other end. */

static void tell(const char *iface)
{
	FILE *table = fopen("/proc/self/net/dev", "r");
	char line[512];
	size_t len = strlen(iface);

	if (table == NULL)
		fail("/proc/self/net/dev");
	while (fgets(line, sizeof(line), table) != NULL) {
		const char *name = line + strspn(line, " ");
		unsigned long long bytes, packets;

		if (strncmp(name, iface, len) == 0 && name[len] == ':' && sscanf(name + len + 1, "%llu %llu", &bytes, &packets) == 2)
			printf("%llu %llu %llu\n", (unsigned long long)now(), packets, bytes);
	}
	fclose(table);
}

static void serve(char **ifaces, int count, bool redirect)
{
	char line[16];

	for (int n = 0; n < count; n += redirect ? 2 : 1) {
		unsigned int to = index_of(ifaces[redirect ? n + 1 : n]);
		const struct bpf_insn drop[] = {MOVE(BPF_REG_0, 2 /* TCX_DROP */), EXIT};
		const struct bpf_insn pass[] = {
			MOVE(BPF_REG_1, (int)to), MOVE(BPF_REG_2, 0), CALL(BPF_FUNC_redirect), EXIT};

		attach(redirect ? load(BPF_PROG_TYPE_SCHED_CLS, pass, 4) : load(BPF_PROG_TYPE_SCHED_CLS, drop, 2), ifaces[n], TCX_INGRESS);
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		for (int n = 0; n < count; n += redirect ? 2 : 1)
			tell(ifaces[n]);
		fflush(stdout);
	}
}

static const struct {
	const char *name;
	int args;
	void (*run)(char **);
} commands[] = {
	{"tap-out", 3, tap_out}, {"tap-loop", 4, tap_loop}, {"packet-out", 3, packet_out},
	{"xdp-out", 3, xdp_out}, {"xdp-in", 2, xdp_in},	    {"xdp-loop", 4, xdp_loop},
	{"xdp-node", 4, xdp_node},
};

int main(int argc, char **argv)
{
	if (argc >= 3 && strcmp(argv[1], "drop") == 0) {
		serve(argv + 2, argc - 2, false);
		return 0;
	}
	if (argc >= 4 && argc % 2 == 0 && strcmp(argv[1], "redirect") == 0) {
		serve(argv + 2, argc - 2, true);
		return 0;
	}
	for (size_t n = 0; n < sizeof(commands) / sizeof(commands[0]); n++) {
		if (argc < 2 || strcmp(argv[1], commands[n].name) != 0 || argc - 2 != commands[n].args)
			continue;
		seconds = strtod(argv[argc - 1], NULL);
		commands[n].run(argv + 2);
		return 0;
	}
	fprintf(stderr, "usage: %s COMMAND ARGUMENT...\n", argv[0]);
	return 2;
}
