/* Adds a GTP-U tunnel to a device of the kernel's gtp driver, by generic netlink:
 *
 *   gtp_tunnel INTERFACE TEID_IN TEID_OUT PEER MS
 *
 * PEER is the IPv4 address of the tunnel's other end. MS is the inner IPv4 address behind it.
 */
#include <arpa/inet.h>
#include <linux/genetlink.h>
#include <linux/gtp.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
    struct nlmsghdr header;
    struct genlmsghdr command;
    char attributes[512];
};

static void begin(struct request *request, int type, int command, int version) {
    memset(request, 0, sizeof(*request));
    request->header.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN);
    request->header.nlmsg_type = type;
    request->header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    request->command.cmd = command;
    request->command.version = version;
}

static void add(struct request *request, int type, const void *value, size_t len) {
    struct nlattr *attribute = (struct nlattr *)((char *)request + NLMSG_ALIGN(request->header.nlmsg_len));
    attribute->nla_type = type;
    attribute->nla_len = NLA_HDRLEN + len;
    memcpy((char *)attribute + NLA_HDRLEN, value, len);
    request->header.nlmsg_len = NLMSG_ALIGN(request->header.nlmsg_len) + NLA_ALIGN(attribute->nla_len);
}

/* Sends a request. Returns the id of the family in the answer, or 0 if the answer has none. */
static int ask(int fd, const struct request *request) {
    char answer[4096];
    int family = 0;
    if (send(fd, request, request->header.nlmsg_len, 0) < 0) {
        perror("send");
        exit(1);
    }
    for (;;) {
        ssize_t got = recv(fd, answer, sizeof(answer), 0);
        if (got < 0) {
            perror("recv");
            exit(1);
        }
        unsigned left = got;
        for (struct nlmsghdr *header = (struct nlmsghdr *)answer; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
            if (header->nlmsg_type == NLMSG_ERROR) {
                int error = ((struct nlmsgerr *)NLMSG_DATA(header))->error;
                if (error != 0) {
                    fprintf(stderr, "gtp_tunnel: %s\n", strerror(-error));
                    exit(1);
                }
                return family;
            }
            char *at = (char *)NLMSG_DATA(header) + GENL_HDRLEN;
            char *end = (char *)header + header->nlmsg_len;
            while (at + NLA_HDRLEN <= end) {
                struct nlattr *attribute = (struct nlattr *)at;
                if (attribute->nla_len < NLA_HDRLEN) {
                    break;
                }
                if (attribute->nla_type == CTRL_ATTR_FAMILY_ID) {
                    family = *(unsigned short *)(at + NLA_HDRLEN);
                }
                at += NLA_ALIGN(attribute->nla_len);
            }
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: gtp_tunnel INTERFACE TEID_IN TEID_OUT PEER MS\n");
        return 2;
    }
    unsigned link = if_nametoindex(argv[1]);
    unsigned version = 1, teid_in = strtoul(argv[2], NULL, 0), teid_out = strtoul(argv[3], NULL, 0);
    struct in_addr peer, ms;
    if (link == 0 || inet_pton(AF_INET, argv[4], &peer) != 1 || inet_pton(AF_INET, argv[5], &ms) != 1) {
        fprintf(stderr, "gtp_tunnel: no such interface, or not an IPv4 address\n");
        return 2;
    }
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);
    struct request request;
    begin(&request, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1);
    add(&request, CTRL_ATTR_FAMILY_NAME, "gtp", 4);
    int family = ask(fd, &request);
    begin(&request, family, GTP_CMD_NEWPDP, 0);
    add(&request, GTPA_VERSION, &version, sizeof(version));
    add(&request, GTPA_LINK, &link, sizeof(link));
    add(&request, GTPA_PEER_ADDRESS, &peer, sizeof(peer));
    add(&request, GTPA_MS_ADDRESS, &ms, sizeof(ms));
    add(&request, GTPA_I_TEI, &teid_in, sizeof(teid_in));
    add(&request, GTPA_O_TEI, &teid_out, sizeof(teid_out));
    ask(fd, &request);
    close(fd);
    return 0;
}
