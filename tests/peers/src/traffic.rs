//! What two guests do with each other: ping, a file with its hash, iperf3.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{LinuxGuest, USUAL};
use crate::proc;
use crate::switch::{Count, Switch};

/// What `ping` said at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ping {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    /// Average round trip; none where nothing came back.
    pub(crate) average_ms: Option<f64>,
}

/// Waits until `to` answers; a first packet may get lost while its link comes up.
pub(crate) fn reach(from: &mut LinuxGuest, to: &str) -> Result<()> {
    let tries = "for i in 1 2 3 4 5 6 7 8 9 10; do ping -c1 -W1 -q";
    let (status, _) = from.run(&format!("{tries} {to} >/dev/null && exit 0; done; exit 1"), Duration::from_secs(40))?;
    ensure!(status == 0, "guest {} gets no answer from {to}", from.number);
    Ok(())
}

/// Pings with so many bytes; every echo must come back.
pub(crate) fn ping(from: &mut LinuxGuest, to: &str, count: u32, bytes: u32) -> Result<()> {
    let before = echo_replies(from)?;
    // Waits at most ten seconds beyond the time that the pings take.
    let deadline = count + 10;
    let command = format!("ping -c {count} -i 0.05 -w {deadline} -s {bytes} {to}");
    let (_, text) = from.run(&command, Duration::from_secs(u64::from(deadline) + 20))?;
    let got = parse_ping(&text).with_context(|| format!("not understood: {text}"))?;
    let Ping { sent, received, average_ms } = got;
    // Echoes of less than eight bytes have no room for a time.
    let average = average_ms.map_or(String::new(), |ms| format!(", average {ms:.3} ms"));
    println!("  ping {} to {to}, {bytes} B: {received} of {sent}{average}", from.ip());
    ensure!(sent == count, "{sent} of {count} echoes of {bytes} B were sent");
    if received == count {
        return Ok(());
    }
    // Busybox's ping loses answers that its guest has received: its socket has room for few that come at once, as they do
    // from a guest that stood still for some tenths of a second; and it ends a second after its last echo where any was
    // answered. The kernel's count knows better.
    let all = proc::until("the others", Duration::from_secs(10), || {
        Ok(Some(echo_replies(from)? - before).filter(|replies| *replies >= u64::from(count)))
    });
    all.with_context(|| format!("{received} of {sent} echoes of {bytes} B came back"))?;
    println!("  the guest's kernel has received all {count}");
    Ok(())
}

/// Answers to echoes that the guest's kernel has received, whole and with a right checksum.
fn echo_replies(guest: &mut LinuxGuest) -> Result<u64> {
    let snmp = guest.sh("cat /proc/net/snmp")?;
    snmp_field(&snmp, "Icmp", "InEchoReps").context("no Icmp InEchoReps")
}

/// Lets a guest tell its log what its kernel has counted: the report of a failure ends with it.
pub(crate) fn log_counters(guest: &mut LinuxGuest) {
    let counts = "grep -E '^(Ip|Icmp|Udp|Tcp):' /proc/net/snmp; grep eth /proc/net/dev; grep virtio /proc/interrupts";
    let state = "cat /proc/net/softnet_stat /proc/uptime; ip neigh; dmesg | tail -n 5";
    // The failure is known; a guest that is not there any more tells nothing of it.
    let _ = guest.run(&format!("{counts}; {state}"), Duration::from_secs(5));
}

/// Asserts that a guest's driver has received what the switch says to have delivered to `port`, no more and no less; what
/// is on its way may arrive. (How much it has sent it learns only when it looks at used buffers, which may be later.)
pub(crate) fn all_received(guest: &mut LinuxGuest, interface: &str, switch: &Switch, port: &str) -> Result<()> {
    let folder = format!("/sys/class/net/{interface}/statistics");
    let mut both = (Count::default(), Count::default());
    let same = proc::until("the same counts", Duration::from_secs(10), || {
        let text = guest.sh(&format!("cat {folder}/rx_packets {folder}/rx_bytes"))?;
        let mut numbers = text.lines().map(|line| line.trim().parse().unwrap_or(0));
        let received = Count { packets: numbers.next().unwrap_or(0), bytes: numbers.next().unwrap_or(0) };
        both = (received, switch.port(port)?.tx());
        Ok((both.0 == both.1).then_some(()))
    });
    same.with_context(|| {
        format!("guest {}, {interface}, received {:?}, the switch delivered {:?}", guest.number, both.0, both.1)
    })
}

/// Moves a file of random bytes and compares the hashes at both ends.
pub(crate) fn file(from: &mut LinuxGuest, to: &mut LinuxGuest, mib: u32) -> Result<()> {
    Transfer::begin(from, to, mib)?.finish(from, to)
}

/// A file of random bytes on its way from one guest to another.
pub(crate) struct Transfer {
    /// Where it goes to.
    address: String,
    port: u16,
    mib: u32,
    began: Instant,
    limit: Duration,
}

impl Transfer {
    /// Makes the file, and begins to send it.
    pub(crate) fn begin(from: &mut LinuxGuest, to: &mut LinuxGuest, mib: u32) -> Result<Self> {
        let mut file = Self::prepare(from, to, &to.ip(), 9000, mib)?;
        file.send(from)?;
        Ok(file)
    }

    /// Makes the file, and lets somebody listen for it at one of the addresses of `to`. With a TCP port for each, several
    /// can be on their way at once.
    pub(crate) fn prepare(
        from: &mut LinuxGuest,
        to: &mut LinuxGuest,
        address: &str,
        port: u16,
        mib: u32,
    ) -> Result<Self> {
        let limit = Duration::from_secs(if to.is_slow() { 300 } else { 120 });
        // nc itself copies a kibibyte at a time; it only connects, then cat moves 64 of them.
        let keep = format!("cat > /tmp/got-{port}; echo > /tmp/done-{port}");
        to.sh(&format!("nc -l -p {port} -e sh -c '{keep}' </dev/null >/tmp/nc.log 2>&1 &"))?;
        listening(to, port)?;
        from.sh_within(&format!("dd if=/dev/urandom of=/tmp/sent-{port} bs=1M count={mib} 2>/dev/null"), limit)?;
        Ok(Self { address: address.to_owned(), port, mib, began: Instant::now(), limit })
    }

    /// Begins to send it.
    pub(crate) fn send(&mut self, from: &mut LinuxGuest) -> Result<()> {
        let Self { address, port, .. } = self;
        self.began = Instant::now();
        from.sh(&format!("nc {address} {port} -e cat /tmp/sent-{port} </dev/null >/dev/null 2>&1 &"))?;
        Ok(())
    }

    /// Whether all of it has arrived.
    pub(crate) fn is_over(&self, to: &mut LinuxGuest) -> Result<bool> {
        Ok(to.run(&format!("[ -e /tmp/done-{} ]", self.port), self.limit)?.0 == 0)
    }

    /// Waits for its end and compares the hashes.
    pub(crate) fn finish(self, from: &mut LinuxGuest, to: &mut LinuxGuest) -> Result<()> {
        let Self { address, port, mib, began, limit } = self;
        to.sh_within(&format!("while [ ! -e /tmp/done-{port} ]; do sleep 0.05; done"), limit)?;
        let seconds = began.elapsed().as_secs_f64();
        // Both guests sum at once, which takes its time under emulation.
        let sum = from.begin(&format!("sha256sum /tmp/sent-{port}"))?;
        let size = to.sh(&format!("ls -l /tmp/got-{port} | awk '{{ print $5 }}'"))?;
        let got = hash(&to.sh_within(&format!("sha256sum /tmp/got-{port}"), limit)?)?;
        let sent = hash(&from.end(&sum, limit)?.1)?;
        from.sh(&format!("rm /tmp/sent-{port}"))?;
        to.sh(&format!("rm /tmp/got-{port} /tmp/done-{port}"))?;
        ensure!(size == (mib << 20).to_string(), "{size} bytes arrived of a file of {mib} MiB");
        ensure!(sent == got, "the file's sha256 was {sent} and arrived as {got}");
        let rate = f64::from(mib) / seconds;
        let one = from.number;
        println!("  file of guest {one} to {address}: {mib} MiB in {seconds:.2} s ({rate:.0} MiB/s), sha256 equal");
        Ok(())
    }
}

/// What iperf3 has moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Iperf {
    /// Gigabits received a second.
    pub(crate) gbit_per_s: f64,
    /// Bytes received.
    pub(crate) bytes: f64,
    /// Segments that were sent again.
    pub(crate) retransmits: f64,
}

/// Runs iperf3 for `seconds`; `reverse` lets the server send. Its figure is information, not a test.
pub(crate) fn iperf3(client: &mut LinuxGuest, server: &mut LinuxGuest, seconds: u32, reverse: bool) -> Result<()> {
    iperf3_server(server)?;
    let Iperf { gbit_per_s, retransmits, .. } = iperf3_client(client, &server.ip(), seconds, reverse)?;
    let arrow = if reverse { "<-" } else { "->" };
    let (one, other) = (client.ip(), server.ip());
    println!("  iperf3 {one} {arrow} {other}: {gbit_per_s:.2} Gbit/s, {retransmits} retransmits");
    Ok(())
}

/// Lets iperf3 wait for one client.
pub(crate) fn iperf3_server(server: &mut LinuxGuest) -> Result<()> {
    server.sh("iperf3 -s -1 </dev/null >/tmp/iperf.log 2>&1 &")?;
    listening(server, 5201)
}

/// Runs iperf3 to the server that waits at `address`.
pub(crate) fn iperf3_client(client: &mut LinuxGuest, address: &str, seconds: u32, reverse: bool) -> Result<Iperf> {
    let command = format!("iperf3 -J -c {address} -t {seconds}{}", if reverse { " -R" } else { "" });
    let text = client.sh_within(&command, Duration::from_secs(u64::from(seconds) + 40))?;
    let report: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("iperf3 wrote {text}"))?;
    let at = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64);
    let bits = at("/end/sum_received/bits_per_second").with_context(|| format!("iperf3 failed: {text}"))?;
    let bytes = at("/end/sum_received/bytes").unwrap_or(0.0);
    let retransmits =
        at("/end/sum_sent/retransmits").with_context(|| format!("iperf3 counts no retransmits: {text}"))?;
    ensure!(bytes > 0.0, "iperf3 moved nothing");
    Ok(Iperf { gbit_per_s: bits / 1e9, bytes, retransmits })
}

/// The round trips of `count` echoes, 50 a second, in milliseconds: of those that busybox's ping has seen come back.
pub(crate) fn round_trips(from: &mut LinuxGuest, to: &str, count: u32) -> Result<Vec<f64>> {
    let deadline = count / 50 + 10;
    // Not to the console, which would be work for each.
    let command = format!("ping -c {count} -i 0.02 -w {deadline} {to} >/tmp/ping; cat /tmp/ping");
    let (_, text) = from.run(&command, Duration::from_secs(u64::from(deadline) + 20))?;
    let times = times(&text);
    ensure!(!times.is_empty(), "no echo came back: {text}");
    Ok(times)
}

/// The time of each answer that `ping` names.
fn times(text: &str) -> Vec<f64> {
    text.lines().filter_map(|line| line.split_once(" time=")?.1.split(' ').next()?.parse().ok()).collect()
}

/// What a device can do, as `ethtool -K` takes it and as `ethtool -k` names it.
const FEATURES: [(&str, &str); 5] = [
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
    ("tx", "tx-checksumming"),
    ("rx", "rx-checksumming"),
];

/// Turns some of [`FEATURES`] off, and makes sure that they are.
pub(crate) fn turn_off(guest: &mut LinuxGuest, features: &[&str]) -> Result<()> {
    for feature in features {
        // A feature that the device fixes is refused here; what counts is looked at below.
        guest.run(&format!("ethtool -K eth0 {feature} off"), USUAL)?;
    }
    let state = guest.sh("ethtool -k eth0")?;
    // virtio-net does not let its receiving side go: who sums all that it sends leaves nothing for it to do.
    for (_, name) in FEATURES.iter().filter(|(short, _)| features.contains(short) && *short != "rx") {
        let off = state.lines().any(|line| line.starts_with(&format!("{name}: off")));
        ensure!(off, "guest {}: {name} is not off: {state}", guest.number);
    }
    Ok(())
}

/// Asserts that the guest's kernel found no wrong checksum and no malformed frame.
pub(crate) fn no_errors(guest: &mut LinuxGuest) -> Result<()> {
    let snmp = guest.sh("cat /proc/net/snmp")?;
    for (protocol, field) in [("Tcp", "InCsumErrors"), ("Udp", "InCsumErrors"), ("Icmp", "InCsumErrors")] {
        let count = snmp_field(&snmp, protocol, field).with_context(|| format!("no {protocol} {field}"))?;
        ensure!(count == 0, "guest {}: {count} {protocol} {field}", guest.number);
    }
    // virtio-net counts there the frames whose header or length it refused.
    let errors = guest.sh("cat /sys/class/net/eth*/statistics/rx_errors")?;
    ensure!(
        errors.lines().all(|line| line.trim() == "0"),
        "guest {}: its driver refused frames: {errors}",
        guest.number
    );
    Ok(())
}

/// Waits until something listens on a TCP port of the guest.
pub(crate) fn listening(guest: &mut LinuxGuest, port: u16) -> Result<()> {
    // /proc/net/tcp: ports are hexadecimal, state 0A is LISTEN.
    guest.sh(&format!(
        "for i in $(seq 100); do cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':{port:04X} .* 0A ' \
         && exit 0; sleep 0.05; done; exit 1"
    ))?;
    Ok(())
}

/// What sha256sum wrote.
fn hash(text: &str) -> Result<String> {
    let (hash, _) = text.split_once(' ').context("sha256sum")?;
    if hash.len() != 64 {
        bail!("sha256sum wrote {text}");
    }
    Ok(hash.to_owned())
}

/// The summary that `ping` ends with.
pub(crate) fn parse_ping(text: &str) -> Option<Ping> {
    let counts = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut numbers = counts.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok());
    let average_ms = text
        .lines()
        .find_map(|line| line.strip_prefix("round-trip min/avg/max = "))
        .and_then(|line| line.split('/').nth(1)?.parse().ok());
    Some(Ping { sent: numbers.next()?, received: numbers.next()?, average_ms })
}

fn snmp_field(snmp: &str, protocol: &str, field: &str) -> Option<u64> {
    // Two lines a protocol: the names, then the values.
    let mut lines = snmp.lines().filter(|line| line.split(':').next() == Some(protocol));
    let at = lines.next()?.split(' ').position(|name| name == field)?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_summaries() {
        let good = "3 packets transmitted, 2 packets received, 33% packet loss\n\
                    round-trip min/avg/max = 0.062/0.070/0.081 ms";
        assert_eq!(parse_ping(good), Some(Ping { sent: 3, received: 2, average_ms: Some(0.070) }));
        let none = "1 packets transmitted, 0 packets received, 100% packet loss";
        assert_eq!(parse_ping(none), Some(Ping { sent: 1, received: 0, average_ms: None }));
        assert_eq!(parse_ping("ping: bad address"), None);
    }

    #[test]
    fn each_answer_has_a_time() {
        let text = "PING 10.77.0.2 (10.77.0.2): 56 data bytes\n\
                    64 bytes from 10.77.0.2: seq=0 ttl=64 time=0.262 ms\n\
                    64 bytes from 10.77.0.2: seq=1 ttl=64 time=1.071 ms (DUP!)\n\n\
                    round-trip min/avg/max = 0.262/0.666/1.071 ms";
        assert_eq!(times(text), [0.262, 1.071]);
    }

    #[test]
    fn snmp_fields_are_found_by_name() {
        let text = "Tcp: InSegs InCsumErrors\nTcp: 7 3\nUdp: InDatagrams\nUdp: 1\nUdpLite: InCsumErrors\nUdpLite: 9";
        assert_eq!(snmp_field(text, "Tcp", "InCsumErrors"), Some(3));
        assert_eq!(snmp_field(text, "Udp", "InCsumErrors"), None);
    }
}
