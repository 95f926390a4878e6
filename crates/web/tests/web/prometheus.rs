//! A real Prometheus scrapes the metrics, and evaluates the shipped rules and the expressions of
//! the shipped dashboard.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use straightline_testing::wait_until;

use super::{Web, skip};

/// Returns the path of a shipped file.
fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name).canonicalize().unwrap()
}

/// Returns whether Prometheus is there. Reports a skip if not.
fn has_prometheus(test: &str) -> bool {
    let has = ["prometheus", "promtool"].iter().all(|name| Command::new(name).arg("--version").output().is_ok());
    if !has {
        skip(test, "the program prometheus or promtool is not installed");
    }
    has
}

/// Returns the expressions of the dashboard's panels, with values for Grafana's variables.
fn dashboard() -> Vec<String> {
    fn collect(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
                fields.values().for_each(|value| collect(value, found));
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    let text = fs::read_to_string(shipped("grafana/straightline.json")).unwrap();
    let mut found = Vec::new();
    collect(&serde_json::from_str(&text).unwrap(), &mut found);
    let fill = |expr: String| expr.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$port", ".*");
    found.into_iter().map(fill).collect()
}

/// A Prometheus of its own. It is killed at the end.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(web: &Web) -> Self {
        let folder = web.folder.path();
        let target = web.address;
        // A free port. Prometheus takes no open socket.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{:?}]\nscrape_configs:\n\
             - {{job_name: straightline, static_configs: [{{targets: [\"{target}\"]}}]}}\n",
            shipped("prometheus/straightline.rules.yml")
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}"));
        command.stdout(Stdio::null()).stderr(fs::File::create(folder.join("prometheus.log")).unwrap());
        Self { child: command.spawn().unwrap(), address }
    }

    /// Asks the HTTP API. None if it does not answer yet.
    fn ask(&self, path: &str) -> Option<serde_json::Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
    }

    /// Evaluates an expression.
    fn query(&self, expression: &str) -> Option<serde_json::Value> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric();
        let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        self.ask(&format!("/api/v1/query?query={}", expression.bytes().map(byte).collect::<String>()))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_and_evaluates_the_rules_and_the_dashboard() {
    if !has_prometheus("prometheus::prometheus_scrapes_and_evaluates_the_rules_and_the_dashboard") {
        return;
    }
    let web = Web::start();
    let _switch = web.switch();
    let prometheus = Prometheus::start(&web);
    wait_until("Prometheus has scraped the server", || {
        let value = prometheus.query("straightline_up")?["data"]["result"][0]["value"][1].clone();
        (value == "1").then_some(())
    });
    let targets = prometheus.ask("/api/v1/targets").unwrap();
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");
    let expressions = dashboard();
    assert!(expressions.len() > 8, "{expressions:?}");
    for expression in expressions {
        let answer = prometheus.query(&expression).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    let rules = wait_until("all rules are evaluated", || {
        let rules = prometheus.ask("/api/v1/rules")?["data"]["groups"][0]["rules"].clone();
        let rules = rules.as_array().cloned()?;
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    for rule in &rules {
        assert_eq!((&rule["health"], rule.get("lastError")), (&"ok".into(), None), "{rule}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].is_string(), "{rule}");
        }
    }
    // It fires if it is pending for some minutes.
    wait_until("the alert for the port that is down is pending", || {
        let rules = prometheus.ask("/api/v1/rules")?["data"]["groups"][0]["rules"].clone();
        let port_down = rules.as_array()?.iter().find(|rule| rule["name"] == "StraightlinePortDown").cloned().unwrap();
        (port_down["state"] != "inactive" && port_down["alerts"].as_array()?.len() == 1).then_some(())
    });
}

#[test]
fn promtool_accepts_the_metrics_and_the_rules() {
    if !has_prometheus("prometheus::promtool_accepts_the_metrics_and_the_rules") {
        return;
    }
    let web = Web::start();
    let _switch = web.switch();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nConnection: close\r\n\r\n";
    let metrics = web.send(request).body;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}\n{metrics}");
    let rules =
        Command::new("promtool").args(["check", "rules"]).arg(shipped("prometheus/straightline.rules.yml")).output();
    let rules = rules.unwrap();
    assert!(rules.status.success(), "{rules:?}");
}
