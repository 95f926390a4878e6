//! A switch that runs is found, and no fix starts another one.

use super::*;

#[test]
fn a_switch_whose_file_was_broken_is_asked_all_the_same() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    fixture.write(&CONFIG.replace("socket = \"@/vm2\"", "socket = 5"));
    let checks = doctor(&fixture);
    assert!(of(&checks, "api").iter().all(|check| check["result"] == "pass"), "{checks:#?}");
    has(&checks, "configuration", "fail", "socket", "straightline check switch.toml");
    has(&checks, "drift", "warn", "was edited", "straightline reload");
}

#[test]
fn a_switch_whose_api_socket_was_removed_is_not_started_again() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let running = Running::start(&fixture);
    fs::remove_file(fixture.path("api")).unwrap();
    let checks = doctor(&fixture);
    let process = format!("(process {})", running.id());
    has(&checks, "api", "fail", &format!("but process {} is one", running.id()), &process);
    let starts = |check: &&serde_json::Value| check["fix"].as_str().unwrap().contains("straightline run");
    assert_eq!(checks.iter().find(starts), None);
}

#[test]
fn checks_that_do_not_apply_are_shown_on_request() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let done = fixture.execute(&["doctor", "--api", "api"]);
    assert!(!done.out.contains("SKIP "), "{}", done.out);
    let done = fixture.execute(&["doctor", "--all", "--api", "api"]);
    assert!(done.out.contains("\nSKIP     tunnel-mtu "), "{}", done.out);
}

/// A frontend whose guest's driver runs, and which has no memory to share.
#[test]
fn a_vm_whose_memory_is_not_shared() {
    let fixture = Fixture::new();
    fixture.write(CONFIG);
    let _running = Running::start(&fixture);
    let mut frontend = std::os::unix::net::UnixStream::connect(fixture.path("vm1")).unwrap();
    // VHOST_USER_SET_FEATURES (2) with VIRTIO_F_VERSION_1, as QEMU does it before the memory table.
    let message = [2_u32, 1, 8, 0, 1].map(u32::to_le_bytes).concat();
    std::io::Write::write_all(&mut frontend, &message).unwrap();
    traffic::wait_for(&fixture, "ports", "/ports/0/cause", "memory-not-shared");
    has(&doctor(&fixture), "links", "fail", "the memory of the VM is not shared", "share=on");
}
