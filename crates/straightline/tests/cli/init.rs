use std::fs;

use super::Fixture;

#[test]
fn the_file_passes_the_check() {
    let fixture = Fixture::new();
    let init = |args: &[&str]| {
        let mut command = fixture.command(&[&["init"], args].concat());
        super::Finished::new(&command.env("XDG_RUNTIME_DIR", fixture.folder.path()).output().unwrap())
    };
    let done = init(&[]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let checked = fixture.execute(&["check", "switch.toml"]);
    assert_eq!((checked.code, checked.out.as_str(), checked.err.as_str()), (Some(0), "ok\n", ""));

    // It overwrites nothing unless it is told to.
    fs::write(fixture.path("switch.toml"), "mine").unwrap();
    let done = init(&[]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""));
    assert!(done.err.starts_with("error: switch.toml: the file exists; "), "{}", done.err);
    assert_eq!(fs::read_to_string(fixture.path("switch.toml")).unwrap(), "mine");
    assert_eq!(init(&["--force"]).code, Some(0));

    let file = fs::read_to_string(fixture.path("switch.toml")).unwrap();
    for args in [&["--stdout"][..], &["--output", "-"]] {
        assert_eq!(init(args).out, file);
    }
    assert_eq!(init(&["--output", "no/such/folder/f.toml"]).code, Some(1));
    assert_eq!(init(&["--stdout", "--force"]).code, Some(2));
}
