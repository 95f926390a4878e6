/*
 * A patch between two vhost-user sockets with DPDK's vhost library and one polling thread. It is the smallest possible
 * switch with that library, and the third-party switch for Linux guests. (testpmd and Open vSwitch offer a control queue
 * that they do not serve, and User Mode Linux waits for an answer for ever.)
 *
 *     rte_patch [EAL argument...] -- SOCKET SOCKET
 */
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_vhost.h>

#define BURST 32
#define BUFFERS 1023 /* more than a burst and the buffers that a pool keeps in reserve */
#define GUEST_RX 0   /* virtio 1.2, 5.1.2: receiveq1 */
#define GUEST_TX 1   /* transmitq1 */
#define NOBODY (-1)

static const char *sockets[2];
static atomic_int guests[2] = {NOBODY, NOBODY};
static atomic_uint turns;
static volatile sig_atomic_t stopping;

static void stop(int signal)
{
	(void)signal;
	stopping = 1;
}

static int side_of(int guest)
{
	char name[PATH_MAX];

	if (rte_vhost_get_ifname(guest, name, sizeof(name)) != 0)
		return -1;
	for (int side = 0; side < 2; side++)
		if (strcmp(name, sockets[side]) == 0)
			return side;
	return -1;
}

static int comes(int guest)
{
	int side = side_of(guest);

	if (side < 0)
		return -1;
	atomic_store(&guests[side], guest);
	return 0;
}

/* Returns only after any turn that may have seen the device, because its rings are unmapped then. */
static void goes(int guest)
{
	int side = side_of(guest);

	if (side < 0)
		return;
	atomic_store(&guests[side], NOBODY);
	unsigned int seen = atomic_load(&turns);
	while (!stopping && atomic_load(&turns) - seen < 2)
		usleep(100);
}

static const struct rte_vhost_device_ops ops = {.new_device = comes, .destroy_device = goes};

static void forward(int from, int to, struct rte_mempool *pool)
{
	struct rte_mbuf *packets[BURST];
	uint16_t count = rte_vhost_dequeue_burst(from, GUEST_TX, pool, packets, BURST);

	if (count == 0)
		return;
	/* The library copies: packets without a free buffer are dropped, and all others are in the guest's buffers. */
	rte_vhost_enqueue_burst(to, GUEST_RX, packets, count);
	rte_pktmbuf_free_bulk(packets, count);
}

static int listen_at(const char *path)
{
	/*
	 * Guests get one queue pair and no control queue. The packed ring is not offered: User Mode Linux accepts it, and with
	 * DPDK 22.11 no packet then arrives.
	 */
	uint64_t withheld = 1ULL << VIRTIO_NET_F_CTRL_VQ | 1ULL << VIRTIO_NET_F_CTRL_RX | 1ULL << VIRTIO_NET_F_GUEST_ANNOUNCE |
			    1ULL << VIRTIO_NET_F_MQ | 1ULL << VIRTIO_F_RING_PACKED;

	return rte_vhost_driver_register(path, 0) || rte_vhost_driver_disable_features(path, withheld) ||
	       rte_vhost_driver_callback_register(path, &ops) || rte_vhost_driver_start(path);
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0 || argc - used != 3) {
		fprintf(stderr, "usage: %s [EAL argument...] -- SOCKET SOCKET\n", argv[0]);
		return 2;
	}
	/* The largest possible buffers: a packet of 64 KiB fits into one. */
	struct rte_mempool *pool = rte_pktmbuf_pool_create("packets", BUFFERS, BURST, 0, UINT16_MAX, rte_socket_id());
	if (pool == NULL) {
		fprintf(stderr, "no memory for packets: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	for (int side = 0; side < 2; side++)
		sockets[side] = argv[used + 1 + side];
	for (int side = 0; side < 2; side++)
		if (listen_at(sockets[side])) {
			fprintf(stderr, "cannot listen at %s\n", sockets[side]);
			return 1;
		}
	puts("ready");
	fflush(stdout);
	while (!stopping) {
		int a = atomic_load(&guests[0]), b = atomic_load(&guests[1]);

		/* The first guest's packets wait in its ring for the second guest. */
		if (a != NOBODY && b != NOBODY) {
			forward(a, b, pool);
			forward(b, a, pool);
		}
		atomic_fetch_add(&turns, 1);
	}
	for (int side = 0; side < 2; side++)
		rte_vhost_driver_unregister(sockets[side]);
	rte_eal_cleanup();
	return 0;
}
