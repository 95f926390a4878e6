use super::Fixture;

/// Returns what bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let fixture = Fixture::new();
    let mut command = fixture.command(&[&["--"], words].concat());
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn shells_complete_commands_options_and_keys() {
    assert!(offered(&["straightline", "bug"]).contains(&"bugreport".to_owned()));
    assert!(offered(&["straightline", "top", "--sor"]).contains(&"--sort".to_owned()));
    let keys = offered(&["straightline", "check", "--explain", "m"]);
    assert!(keys.contains(&"mtu".to_owned()) && keys.contains(&"mac".to_owned()), "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with('m')), "{keys:?}");
}

#[test]
fn each_shell_gets_a_script() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = fixture.execute(&["completions", shell]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
        assert!(done.out.contains("COMPLETE") && done.out.contains("straightline"), "{}", done.out);
    }
}
