/*
 * A patch between two vhost-user sockets with DPDK's vhost library and one polling thread. It is the smallest possible
 * switch with that library, and the third-party switch for Linux guests. (testpmd and Open vSwitch offer a control queue
 * that they do not serve, and User Mode Linux waits for an answer for ever.)
 *
 *     rte_patch [EAL argument...] -- SOCKET SOCKET
 *     rte_patch [EAL argument...] -- SOCKET
 *
 * With one socket, the other side is the first device that the EAL arguments name. Such a guest gets no offload, because a
 * driver like net_af_xdp has none.
 */
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_vhost.h>

#define BURST 32
#define BUFFERS 1023 /* more than a burst and the buffers that a pool keeps in reserve */
#define GUEST_RX 0   /* virtio 1.2, 5.1.2: receiveq1 */
#define GUEST_TX 1   /* transmitq1 */
#define NOBODY (-1)
#define DEVICE 0
#define DEVICE_RING 2048
#define DEVICE_BUFFERS 16383 /* of the usual size: the driver for AF_XDP takes none above a page */

static const char *sockets[2];
static int socket_count;
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
	for (int side = 0; side < socket_count; side++)
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

static void exchange_with_device(int guest, struct rte_mempool *pool)
{
	struct rte_mbuf *packets[BURST];
	uint16_t count = rte_vhost_dequeue_burst(guest, GUEST_TX, pool, packets, BURST);
	uint16_t sent = rte_eth_tx_burst(DEVICE, 0, packets, count);

	if (sent < count)
		rte_pktmbuf_free_bulk(packets + sent, count - sent);
	count = rte_eth_rx_burst(DEVICE, 0, packets, BURST);
	if (count == 0)
		return;
	rte_vhost_enqueue_burst(guest, GUEST_RX, packets, count);
	rte_pktmbuf_free_bulk(packets, count);
}

static int start_device(struct rte_mempool *pool)
{
	struct rte_eth_conf conf = {0};

	return rte_eth_dev_configure(DEVICE, 1, 1, &conf) ||
	       rte_eth_rx_queue_setup(DEVICE, 0, DEVICE_RING, SOCKET_ID_ANY, NULL, pool) ||
	       rte_eth_tx_queue_setup(DEVICE, 0, DEVICE_RING, SOCKET_ID_ANY, NULL) || rte_eth_dev_start(DEVICE);
}

static int listen_at(const char *path)
{
	/*
	 * Guests get one queue pair and no control queue. The packed ring is not offered: User Mode Linux accepts it, and with
	 * DPDK 22.11 no packet then arrives.
	 */
	uint64_t withheld = 1ULL << VIRTIO_NET_F_CTRL_VQ | 1ULL << VIRTIO_NET_F_CTRL_RX | 1ULL << VIRTIO_NET_F_GUEST_ANNOUNCE |
			    1ULL << VIRTIO_NET_F_MQ | 1ULL << VIRTIO_F_RING_PACKED;

	if (socket_count == 1)
		withheld |= 1ULL << VIRTIO_NET_F_CSUM | 1ULL << VIRTIO_NET_F_GUEST_CSUM | 1ULL << VIRTIO_NET_F_HOST_TSO4 |
			    1ULL << VIRTIO_NET_F_HOST_TSO6 | 1ULL << VIRTIO_NET_F_HOST_UFO | 1ULL << VIRTIO_NET_F_HOST_ECN |
			    1ULL << VIRTIO_NET_F_GUEST_TSO4 | 1ULL << VIRTIO_NET_F_GUEST_TSO6 |
			    1ULL << VIRTIO_NET_F_GUEST_UFO | 1ULL << VIRTIO_NET_F_GUEST_ECN;
	return rte_vhost_driver_register(path, 0) || rte_vhost_driver_disable_features(path, withheld) ||
	       rte_vhost_driver_callback_register(path, &ops) || rte_vhost_driver_start(path);
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0 || argc - used < 2 || argc - used > 3) {
		fprintf(stderr, "usage: %s [EAL argument...] -- SOCKET [SOCKET]\n", argv[0]);
		return 2;
	}
	socket_count = argc - used - 1;
	bool device = socket_count == 1;
	/* The largest possible buffers where the driver takes them: a packet of 64 KiB fits into one. */
	struct rte_mempool *pool =
		rte_pktmbuf_pool_create("packets", device ? DEVICE_BUFFERS : BUFFERS, BURST, 0,
					device ? RTE_MBUF_DEFAULT_BUF_SIZE : UINT16_MAX, rte_socket_id());
	if (pool == NULL) {
		fprintf(stderr, "no memory for packets: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	if (device && start_device(pool) != 0) {
		fprintf(stderr, "cannot start the device: %s\n", rte_strerror(rte_errno));
		return 1;
	}
	for (int side = 0; side < socket_count; side++)
		sockets[side] = argv[used + 1 + side];
	for (int side = 0; side < socket_count; side++)
		if (listen_at(sockets[side])) {
			fprintf(stderr, "cannot listen at %s\n", sockets[side]);
			return 1;
		}
	puts("ready");
	fflush(stdout);
	while (!stopping) {
		int a = atomic_load(&guests[0]), b = atomic_load(&guests[1]);

		/* The first guest's packets wait in its ring for the second guest. */
		if (device && a != NOBODY) {
			exchange_with_device(a, pool);
		} else if (a != NOBODY && b != NOBODY) {
			forward(a, b, pool);
			forward(b, a, pool);
		}
		atomic_fetch_add(&turns, 1);
	}
	for (int side = 0; side < socket_count; side++)
		rte_vhost_driver_unregister(sockets[side]);
	if (device)
		rte_eth_dev_stop(DEVICE);
	rte_eal_cleanup();
	return 0;
}
