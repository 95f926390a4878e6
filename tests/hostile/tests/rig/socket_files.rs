//! Users who own the folder of a frontend's socket, and replace the socket by another file.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use hostile::scene::Scene;
use rustix::process::geteuid;
use straightline_testing::{vhost_user, wait_until};

/// Returns the owner, group and mode of a file that no frontend's user may change.
fn system(file: &Path) -> (u32, u32, u32) {
    let metadata = fs::metadata(file).expect("the file");
    (metadata.uid(), metadata.gid(), metadata.mode())
}

#[test]
fn a_link_in_the_place_of_a_socket_is_not_followed() {
    let mut scene = Scene::new();
    let socket = scene.rig.socket(0).clone();
    let file = socket.with_file_name("system");
    fs::write(&file, "secret").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its bits");
    let before = system(&file);
    let away = socket.with_file_name("away");
    fs::rename(&socket, &away).expect("the socket");
    symlink(&file, &socket).expect("a link");

    let mut config = scene.rig.switch.config();
    let port = vhost_user(&mut config.ports[0]);
    port.perms = 0o666;
    // Only root may change the owner of a file.
    port.owner = geteuid().is_root().then_some(1);
    let error = scene.measure_gap("a reload with a link in the place of a socket", |scene| {
        scene.rig.switch.reload(&config).expect_err("another file is there")
    });
    let error = format!("{error:#}");
    assert!(error.contains("another file is in its place"), "{error}");
    assert_eq!(system(&file), before);
    scene.victims.go_on();

    // When the socket's port ends, the link stays.
    let mut without = scene.rig.switch.config();
    without.ports[0].mtu = 9000;
    let error = scene.rig.switch.reload(&without).expect_err("the path is taken");
    assert!(format!("{error:#}").contains("a file that is not a socket is there"), "{error:#}");
    assert!(fs::symlink_metadata(&socket).is_ok_and(|metadata| metadata.is_symlink()));
    assert_eq!(fs::read_to_string(&file).expect("the file"), "secret");
    scene.rig.wait_down(0, "cannot listen again");

    // With the link gone, the port listens again by itself.
    fs::remove_file(&socket).expect("the link");
    wait_until("the port listens again", || scene.rig.port(0).reason.is_some_and(|why| !why.contains("cannot listen")));
    scene.recovers("a link in the place of a socket");
    scene.end();
}
