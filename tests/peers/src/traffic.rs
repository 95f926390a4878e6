//! Traffic between two guests: ping, a file with its hash, iperf3.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::guest::LinuxGuest;
use crate::proc::{self, PATIENCE};
use crate::say::say;
use crate::switch::{Count, Switch};

/// Options of `ping`, which ends by itself before. A busy guest may take long to send its echoes.
const DEADLINE: &str = "-w 300";

/// The summary of `ping`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ping {
    pub(crate) sent: u32,
    pub(crate) received: u32,
    /// Average round trip, or `None` if no reply came back.
    pub(crate) average_ms: Option<f64>,
}

/// Waits until `to` answers. The first packets may be lost while its link comes up.
pub(crate) fn reach(from: &mut LinuxGuest, to: &str) -> Result<()> {
    until(from, &format!("ping -c1 -W1 -q {to} >/dev/null"))
}

/// Pings `count` times with `bytes` bytes. Every echo must come back.
pub(crate) fn ping(from: &mut LinuxGuest, to: &str, count: u32, bytes: u32) -> Result<()> {
    let before = echo_replies(from, to)?;
    let (_, text) = from.run_within(2 * PATIENCE, &format!("ping -c {count} -i 0.05 {DEADLINE} -s {bytes} {to}"))?;
    let got = parse_ping(&text).with_context(|| format!("ping printed no summary: {text}"))?;
    let Ping { sent, received, average_ms } = got;
    // Echoes of less than eight bytes contain no time.
    let average = average_ms.map_or(String::new(), |ms| format!(", average {ms:.3} ms"));
    say!("  ping guest {} to {to}, {bytes} B: {received} of {sent}{average}", from.number);
    ensure!(sent == count, "{sent} of {count} echoes of {bytes} B were sent");
    if received == count {
        return Ok(());
    }
    // Busybox's ping may miss replies that its guest has received, so the kernel's count decides:
    // - Its socket holds only a few replies, and a guest that was descheduled for some tenths of a
    //   second sends many at once.
    // - It ends a second after its last echo if any echo was answered.
    let all = proc::until("the missing replies", || {
        Ok(Some(echo_replies(from, to)? - before).filter(|replies| *replies >= u64::from(count)))
    });
    all.with_context(|| format!("{received} of {sent} echoes of {bytes} B came back"))?;
    say!("  the guest's kernel has received all {count}");
    Ok(())
}

/// Returns the number of complete echo replies with a right checksum that the guest's kernel has
/// received, over the IP version of `address`.
fn echo_replies(guest: &mut LinuxGuest, address: &str) -> Result<u64> {
    if address.contains(':') {
        let replies = guest.sh("awk '/^Icmp6InEchoReplies/ { print $2 }' /proc/net/snmp6")?;
        return replies.parse().with_context(|| format!("no Icmp6InEchoReplies, but {replies:?}"));
    }
    let snmp = guest.sh("cat /proc/net/snmp")?;
    snmp_field(&snmp, "Icmp", "InEchoReps").context("no Icmp InEchoReps")
}

/// Asserts that a guest's driver has received exactly the packets that the switch has delivered to
/// `port`. Waits for packets in flight. (Sent packets are not compared: the driver counts them only
/// when it sees used buffers, which may be later.)
pub(crate) fn all_received(guest: &mut LinuxGuest, interface: &str, switch: &Switch, port: &str) -> Result<()> {
    let folder = format!("/sys/class/net/{interface}/statistics");
    let mut both = (Count::default(), Count::default());
    let same = proc::until("the same counts", || {
        let text = guest.sh(&format!("cat {folder}/rx_packets {folder}/rx_bytes"))?;
        let mut numbers = text.lines().map(|line| line.trim().parse().unwrap_or(0));
        let received = Count { packets: numbers.next().unwrap_or(0), bytes: numbers.next().unwrap_or(0) };
        both = (received, switch.port(port)?.tx());
        Ok((both.0 == both.1).then_some(()))
    });
    same.with_context(|| {
        format!("guest {} received {:?} by {interface}, but the switch delivered {:?}", guest.number, both.0, both.1)
    })
}

/// Transfers a file of random bytes, and compares the hashes at both ends.
pub(crate) fn file(from: &mut LinuxGuest, to: &mut LinuxGuest, mib: u32) -> Result<()> {
    Transfer::begin(from, to, mib)?.finish(from, to)
}

/// The transfer of a file of random bytes from one guest to another.
pub(crate) struct Transfer {
    /// Destination address.
    address: String,
    port: u16,
    mib: u32,
    began: Instant,
}

impl Transfer {
    /// Creates the file, and starts to send it.
    pub(crate) fn begin(from: &mut LinuxGuest, to: &mut LinuxGuest, mib: u32) -> Result<Self> {
        let mut file = Self::prepare(from, to, &to.ip(), 9000, mib)?;
        file.send(from)?;
        Ok(file)
    }

    /// Creates the file, and starts a listener at one of the addresses of `to`. Transfers with
    /// different TCP ports can run at the same time.
    pub(crate) fn prepare(
        from: &mut LinuxGuest,
        to: &mut LinuxGuest,
        address: &str,
        port: u16,
        mib: u32,
    ) -> Result<Self> {
        // nc copies 1 KiB at a time, so it only connects; cat copies 64 KiB at a time.
        let keep = format!("cat > /tmp/got-{port}; echo > /tmp/done-{port}");
        to.sh(&format!("nc -l -p {port} -e sh -c '{keep}' </dev/null >/tmp/nc.log 2>&1 &"))?;
        listening(to, port)?;
        from.sh(&format!("dd if=/dev/urandom of=/tmp/sent-{port} bs=1M count={mib} 2>/dev/null"))?;
        // The time is the subject: a transfer says how fast it was.
        Ok(Self { address: address.to_owned(), port, mib, began: Instant::now() })
    }

    /// Starts to send the file.
    pub(crate) fn send(&mut self, from: &mut LinuxGuest) -> Result<()> {
        let Self { address, port, .. } = self;
        // The time is the subject: a transfer says how fast it was.
        self.began = Instant::now();
        from.sh(&format!("nc {address} {port} -e cat /tmp/sent-{port} </dev/null >/dev/null 2>&1 &"))?;
        Ok(())
    }

    /// Returns true if the whole file has arrived.
    pub(crate) fn is_over(&self, to: &mut LinuxGuest) -> Result<bool> {
        Ok(to.run(&format!("[ -e /tmp/done-{} ]", self.port))?.0 == 0)
    }

    /// Waits until the file has arrived, and compares the hashes.
    pub(crate) fn finish(self, from: &mut LinuxGuest, to: &mut LinuxGuest) -> Result<()> {
        let Self { address, port, mib, began } = self;
        until(to, &format!("[ -e /tmp/done-{port} ]"))?;
        // The time is the subject: a transfer says how fast it was.
        let seconds = began.elapsed().as_secs_f64();
        // Both guests compute their hash at the same time, because it is slow under emulation.
        let sum = from.begin(&format!("sha256sum /tmp/sent-{port}"))?;
        let size = to.sh(&format!("ls -l /tmp/got-{port} | awk '{{ print $5 }}'"))?;
        let got = hash(&to.sh(&format!("sha256sum /tmp/got-{port}"))?)?;
        let sent = hash(&from.end(&sum)?.1)?;
        from.sh(&format!("rm /tmp/sent-{port}"))?;
        to.sh(&format!("rm /tmp/got-{port} /tmp/done-{port}"))?;
        ensure!(size == (mib << 20).to_string(), "{size} bytes of a file of {mib} MiB arrived");
        ensure!(sent == got, "the file was sent with sha256 {sent} and arrived with {got}");
        let rate = f64::from(mib) / seconds;
        let one = from.number;
        say!("  file of guest {one} to {address}: {mib} MiB in {seconds:.2} s ({rate:.0} MiB/s), sha256 equal");
        Ok(())
    }
}

/// The result of iperf3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Iperf {
    /// Gigabits received per second.
    pub(crate) gbit_per_s: f64,
    /// Bytes received.
    pub(crate) bytes: f64,
    /// Retransmitted segments.
    pub(crate) retransmits: f64,
}

impl Iperf {
    /// Reads the report of a client (`-J`).
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let report: serde_json::Value = serde_json::from_str(text).with_context(|| format!("iperf3 wrote {text}"))?;
        let at = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64);
        let bits = at("/end/sum_received/bits_per_second").with_context(|| format!("iperf3 failed: {text}"))?;
        let bytes = at("/end/sum_received/bytes").unwrap_or(0.0);
        let retransmits =
            at("/end/sum_sent/retransmits").with_context(|| format!("iperf3 printed no retransmits: {text}"))?;
        ensure!(bytes > 0.0, "iperf3 transferred no bytes");
        Ok(Iperf { gbit_per_s: bits / 1e9, bytes, retransmits })
    }
}

/// Runs iperf3 for `seconds`, and prints its rate, which is no criterion of the test. With
/// `reverse` the server sends.
pub(crate) fn iperf3(client: &mut LinuxGuest, server: &mut LinuxGuest, seconds: u32, reverse: bool) -> Result<()> {
    iperf3_server(server)?;
    let Iperf { gbit_per_s, retransmits, .. } = iperf3_client(client, &server.ip(), seconds, reverse)?;
    let arrow = if reverse { "<-" } else { "->" };
    let one = client.ip();
    let other = server.ip();
    say!("  iperf3 {one} {arrow} {other}: {gbit_per_s:.2} Gbit/s, {retransmits} retransmits");
    Ok(())
}

/// Starts an iperf3 server for one client.
pub(crate) fn iperf3_server(server: &mut LinuxGuest) -> Result<()> {
    server.sh("iperf3 -s -1 </dev/null >/tmp/iperf.log 2>&1 &")?;
    listening(server, 5201)
}

/// Runs an iperf3 client with the server at `address`.
pub(crate) fn iperf3_client(client: &mut LinuxGuest, address: &str, seconds: u32, reverse: bool) -> Result<Iperf> {
    let command = format!("iperf3 -J -c {address} -t {seconds}{}", if reverse { " -R" } else { "" });
    let text = client.sh_within(PATIENCE + Duration::from_secs(seconds.into()), &command)?;
    Iperf::parse(&text)
}

/// Returns the round trips in milliseconds of `count` echoes, 50 a second, as far as busybox's ping
/// has seen replies.
pub(crate) fn round_trips(from: &mut LinuxGuest, to: &str, count: u32) -> Result<Vec<f64>> {
    // Output to the console would cost time for each echo, so it goes to a file.
    let command = format!("ping -c {count} -i 0.02 {DEADLINE} {to} >/tmp/ping; cat /tmp/ping");
    let (_, text) = from.run_within(2 * PATIENCE, &command)?;
    let times = times(&text);
    ensure!(!times.is_empty(), "no echo came back: {text}");
    Ok(times)
}

/// Returns the time of each reply in the output of `ping`.
fn times(text: &str) -> Vec<f64> {
    text.lines().filter_map(|line| line.split_once(" time=")?.1.split(' ').next()?.parse().ok()).collect()
}

/// Features of a device: the name for `ethtool -K`, and the name in the output of `ethtool -k`.
const FEATURES: [(&str, &str); 5] = [
    ("tso", "tcp-segmentation-offload"),
    ("gso", "generic-segmentation-offload"),
    ("gro", "generic-receive-offload"),
    ("tx", "tx-checksumming"),
    ("rx", "rx-checksumming"),
];

/// Turns some of [`FEATURES`] off, and asserts that they are off.
pub(crate) fn turn_off(guest: &mut LinuxGuest, features: &[&str]) -> Result<()> {
    for feature in features {
        // The command fails for a feature that the device fixes; the state is checked below.
        guest.run(&format!("ethtool -K {} {feature} off", guest.interface))?;
    }
    let state = guest.sh(&format!("ethtool -k {}", guest.interface))?;
    // virtio-net cannot turn rx off. If the other guest sums all that it sends, rx has nothing to
    // do.
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
        let count =
            snmp_field(&snmp, protocol, field).with_context(|| format!("/proc/net/snmp has no {protocol} {field}"))?;
        ensure!(count == 0, "guest {}: {count} {protocol} {field}", guest.number);
    }
    // rx_errors counts the frames whose header or length virtio-net or a tap refused.
    let errors = guest.sh("cat /sys/class/net/*/statistics/rx_errors")?;
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
    let listens = format!("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':{port:04X} .* 0A '");
    until(guest, &listens)
}

/// Waits until a command succeeds in the guest.
///
/// The guest is asked again and again. It must not wait by itself: User Mode Linux sometimes loses
/// the timer of `sleep`, and then sleeps until another event wakes it.
pub(crate) fn until(guest: &mut LinuxGuest, command: &str) -> Result<()> {
    proc::until(&format!("success of `{command}`"), || Ok((guest.run(command)?.0 == 0).then_some(())))
        .with_context(|| format!("guest {}", guest.number))
}

/// Returns the hash in the output of sha256sum.
fn hash(text: &str) -> Result<String> {
    let (hash, _) = text.split_once(' ').context("sha256sum printed no hash")?;
    if hash.len() != 64 {
        bail!("sha256sum printed no hash of 64 digits: {text}");
    }
    Ok(hash.to_owned())
}

/// Parses the summary at the end of the output of `ping`.
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
    // Each protocol has two lines: the names, then the values.
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
