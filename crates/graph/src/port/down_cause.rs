//! Causes for which a link is down: one table of codes, meanings and remedies.
//!
//! A link's status has a sentence with the details ([`LinkStatus::reason`](crate::LinkStatus)), and
//! one of these causes. `straightline ports` and `straightline doctor` print its remedy.

macro_rules! causes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $remedy:literal;)+) => {
        /// The cause for which a link is down. Its code never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DownCause { $($(#[doc = $doc])+ $variant,)+ }

        impl DownCause {
            /// All causes.
            pub const ALL: &'static [DownCause] = &[$(DownCause::$variant,)+];

            /// Returns the code, which scripts compare.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(DownCause::$variant => $code,)+ }
            }

            /// Returns the meaning, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(DownCause::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }

            /// Returns the remedy of the table, in one sentence. `PORT` stands for the port's name,
            /// `SOCKET` for its socket and `INTERFACE` for its interface.
            #[must_use]
            pub fn template(self) -> &'static str {
                match self { $(DownCause::$variant => $remedy,)+ }
            }
        }
    };
}

causes! {
    /// No process has connected to the port's socket.
    NoFrontend = "no-frontend", "Start the VM with a vhost-user device at SOCKET.";
    /// No process listens at the socket to which the port connects.
    Connecting = "connecting", "Start the VM that listens at SOCKET; if it connects itself, use `mode = \"server\"`.";
    /// The switch may not connect to the socket of the frontend.
    ConnectDenied = "connect-denied", "Let the VM make SOCKET under `umask 0002`, in a folder of the switch's group with mode 2750.";
    /// The connection that a client handed over has ended, and it is served only once.
    HandedOver = "handed-over", "Add the port again with `straightline port`.";
    /// The frontend has closed its connection, and the next one is awaited.
    FrontendLeft = "frontend-left", "Start the VM again, unless it connects again by itself: `docs/connect.md` says which programs do.";
    /// The frontend sent a message that breaks the vhost-user protocol.
    Protocol = "protocol", "Update the program at the other end: it breaks the vhost-user protocol.";
    /// The frontend's request could not be carried out.
    RequestFailed = "request-failed", "Change the frontend's settings that the reason names, then restart the VM.";
    /// A frontend is connected, and has not started its rings.
    RingNotStarted = "ring-not-started", "Boot the guest and load its virtio-net driver: it starts the rings.";
    /// The guest's driver runs, and the frontend has sent no memory.
    MemoryNotShared = "memory-not-shared",
        "Share the VM's memory: `memory-backend-memfd,share=on` (QEMU), `shared=on` (Cloud Hypervisor); restart it.";
    /// The frontend has disabled a ring of the first queue pair.
    RingDisabled = "ring-disabled", "Set the guest's interface up, with `ip link set eth0 up` in the guest.";
    /// The features are not negotiated yet.
    NoFeatures = "no-features", "Boot the guest and load its virtio-net driver: it negotiates the features.";
    /// The guest's driver does not follow virtio 1.0, or no driver runs yet.
    LegacyDriver = "legacy-driver", "Boot the guest, or give it a modern virtio device (QEMU: `disable-legacy=on,disable-modern=off`).";
    /// The guest's addresses go through an IOMMU.
    Iommu = "iommu", "Take the virtual IOMMU from the VM's device (QEMU: remove `iommu_platform=on`).";
    /// A ring or the memory of the guest is not usable.
    RingFault = "ring-fault", "Restart the guest's driver, and look for a fault in it or for an attack.";
    /// The port cannot listen at its socket.
    CannotListen = "cannot-listen", "Free SOCKET; the port tries again every second.";
    /// An administrator has set the link down.
    SetDown = "set-down", "Set the link up with `straightline link PORT up`.";
    /// The port was stopped or paused by a change of the configuration.
    Stopped = "stopped", "Nothing needs to be done: the port serves again when the change is complete.";
    /// A bug of the switch ended the port or its connection.
    Bug = "bug", "Restart the switch, and report the message as a bug.";
    /// The interface does not exist.
    InterfaceMissing = "interface-missing", "Create interface INTERFACE, or correct its name; `ip link` shows all.";
    /// Another program uses the interface.
    InterfaceBusy = "interface-busy", "Name another interface, or end the program that uses INTERFACE.";
    /// The switch lacks a privilege to open the interface.
    InterfaceDenied = "interface-denied", "Start the switch with the capability that the reason names.";
    /// The interface or the kernel cannot do what the port needs.
    InterfaceUnsupported = "interface-unsupported", "Change the keys of port PORT that the reason names.";
    /// Opening the interface failed.
    InterfaceFailed = "interface-failed", "Look at INTERFACE with `ip -details link show INTERFACE`.";
    /// An administrator has set the interface down.
    InterfaceDown = "interface-down", "Set the interface up with `ip link set INTERFACE up`.";
    /// The interface has no carrier.
    NoCarrier = "no-carrier", "Look at the cable of INTERFACE, or set the other end of its pair up.";
    /// The interface has gone.
    InterfaceGone = "interface-gone", "Create INTERFACE again; the port opens it by itself.";
    /// The interface stopped working, and is opened anew.
    InterfaceReopened = "interface-reopened", "Nothing needs to be done, unless it happens again: see `dmesg`.";
    /// The underlay's MAC address is not known.
    NoUnderlayMac = "no-underlay-mac", "Set the underlay's port up, or name a `mac` in the section of the underlay.";
    /// The underlay has no route to a remote.
    NoRoute = "no-route", "Add a `gateway` to the section of the underlay, and run `straightline reload`.";
    /// The tunnel has no remote.
    NoRemote = "no-remote", "Name the other ends in `remotes` of the port's section, or add them with `straightline remote add PORT ADDRESS`.";
    /// No next hop of the tunnel has answered.
    NextHopSilent = "next-hop-silent", "Look at the next hops with `straightline neighbours`, and ping them with `straightline ping UNDERLAY ADDRESS`.";
}

impl DownCause {
    /// Returns the remedy for a port: what an operator can do, in one sentence.
    /// `next_hop` is for a tunnel: the name of its underlay, and the address of its next hop.
    #[must_use]
    pub fn remedy(
        self,
        port: &str,
        socket: Option<&str>,
        interface: Option<&str>,
        next_hop: Option<(&str, &str)>,
    ) -> String {
        let words = self.template().replace("PORT", port);
        let words = words.replace("SOCKET", socket.unwrap_or("its socket"));
        let words = words.replace("INTERFACE", interface.unwrap_or("the interface"));
        let (underlay, address) = next_hop.unwrap_or(("UNDERLAY", "ADDRESS"));
        words.replace("UNDERLAY", underlay).replace("ADDRESS", address)
    }
}

/// A link that is down: the cause, and the details in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The cause.
    pub cause: DownCause,
    /// The reason, in one sentence.
    pub reason: String,
}

impl Down {
    /// Returns a link that is down for this cause.
    pub fn new(cause: DownCause, reason: impl Into<String>) -> Self {
        Down { cause, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_meanings_and_remedies_are_unique() {
        for text in [DownCause::code, DownCause::meaning, DownCause::template] {
            let mut texts: Vec<_> = DownCause::ALL.iter().map(|&cause| text(cause)).collect();
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len(), DownCause::ALL.len());
        }
    }

    #[test]
    fn meanings_and_remedies_are_sentences() {
        for &cause in DownCause::ALL {
            for text in [cause.meaning(), cause.template()] {
                assert!(text.starts_with(|c: char| c.is_ascii_uppercase()), "{text}");
                assert!(text.ends_with('.') && !text.contains(". ") && !text.contains("  "), "one sentence: {text}");
                assert!(text.split(' ').count() <= 25, "{text}");
            }
            assert!(cause.code().bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase()), "{}", cause.code());
        }
    }

    /// The table in `docs/doctor.md` has a row for each cause.
    #[test]
    fn the_document_has_each_cause() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
        let document = std::fs::read_to_string(path).unwrap();
        let (_, section) = document.split_once("\n## Why a link is down\n").unwrap();
        let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |cause: &DownCause| format!("| `{}` | {} | {} |", cause.code(), cause.meaning(), cause.template());
        assert_eq!(rows, DownCause::ALL.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn a_remedy_names_the_port_its_socket_and_its_interface() {
        assert_eq!(
            DownCause::SetDown.remedy("vm1", None, None, None),
            "Set the link up with `straightline link vm1 up`."
        );
        let remedy = DownCause::NoFrontend.remedy("vm1", Some("/run/vm1.sock"), None, None);
        assert_eq!(remedy, "Start the VM with a vhost-user device at /run/vm1.sock.");
        let remedy = DownCause::InterfaceDown.remedy("wan", None, Some("eth0"), None);
        assert_eq!(remedy, "Set the interface up with `ip link set eth0 up`.");
        let remedy = DownCause::NextHopSilent.remedy("t1", None, None, Some(("wan", "192.0.2.2")));
        assert!(remedy.ends_with("ping them with `straightline ping wan 192.0.2.2`."), "{remedy}");
        assert!(!DownCause::ALL.iter().any(|cause| {
            let remedy = cause.remedy("a", None, None, None);
            ["PORT", "SOCKET", "INTERFACE"].iter().any(|word| remedy.contains(word))
        }));
    }
}
