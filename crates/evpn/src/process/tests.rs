//! The timers of the process. Its time is tokio's, which a test moves.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use tokio::time::advance;

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);

/// Returns a runtime whose time stands still, unless it has nothing to do.
fn paused() -> Runtime {
    runtime::Builder::new_current_thread().enable_io().enable_time().start_paused(true).build().unwrap()
}

/// Returns a configuration whose sockets are in a folder.
fn config(folder: &Path) -> Config {
    let text = format!(
        "asn = 65000\nrouter-id = \"192.0.2.1\"\naddress = \"192.0.2.1\"\ngobgp = \"unix://{0}/gobgp\"\n\
         api = \"{0}/api\"\n[network.net]\nbridge = \"lan\"\ntunnel = \"vx0\"\nvni = 100\n",
        folder.display()
    );
    Config::parse(&text, Path::new("evpn.toml")).unwrap()
}

fn neighbour(is_up: bool) -> News {
    News::GoBgp(GoBgpNews::Neighbour(Neighbour { address: "192.0.2.2".to_owned(), asn: 65000, is_up }))
}

/// Neighbours that are up have some seconds to tell their tables, and a second without news after that.
#[test]
fn routes_are_known_when_neighbours_have_had_time() {
    let folder = TempDir::new().unwrap();
    let (news, _inbox) = channel(WAITING);
    paused().block_on(async {
        let mut process = Process::new(config(folder.path()), news);
        process.machine.begin_routes();
        let mut after = async |time: Duration, news: Option<News>| {
            advance(time).await;
            news.into_iter().for_each(|news| process.take(news));
            process.look();
            (process.knows_routes, process.wait())
        };
        assert_eq!(after(Duration::ZERO, Some(News::GoBgp(GoBgpNews::Listed))).await, (false, SETTLE));
        assert_eq!(after(SETTLE - MILLISECOND, None).await, (false, MILLISECOND));
        // A neighbour that comes begins anew, once it is up.
        assert_eq!(after(Duration::ZERO, Some(neighbour(false))).await, (false, IDLE));
        assert_eq!(after(IDLE, None).await, (false, IDLE));
        assert_eq!(after(Duration::ZERO, Some(neighbour(true))).await, (false, SETTLE));
        assert_eq!(after(SETTLE - MILLISECOND, Some(News::GoBgp(GoBgpNews::Told(Vec::new())))).await, (false, QUIET));
        assert_eq!(after(QUIET - MILLISECOND, None).await, (false, MILLISECOND));
        assert_eq!(after(MILLISECOND, None).await, (true, IDLE));
    });
}

/// A client that asks nothing holds others up for some seconds only.
#[test]
fn a_silent_client_is_left() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("status");
    let (news, mut inbox) = channel(WAITING);
    let runtime = paused();
    runtime.block_on(async {
        tokio::spawn(answer::serve(answer::listen(&socket).unwrap(), news));
        let _silent = UnixStream::connect(&socket).unwrap();
        let mut client = UnixStream::connect(&socket).unwrap();
        writeln!(client, "status").unwrap();
        // Time passes, since there is nothing else to do.
        let Some(News::Asked(question, answer)) = inbox.recv().await else { panic!("other news") };
        assert_eq!(question, Question::Status);
        answer.send("{}".to_owned()).unwrap();
        yield_now().await;
    });
}

/// Each side is asked again a second after it has not answered, and so is a change of the switch.
#[test]
fn who_does_not_answer_is_asked_again_after_a_pause() {
    let folder = TempDir::new().unwrap();
    let config = config(folder.path());
    let is_lost = |news: &News| matches!(news, News::GoBgp(GoBgpNews::Lost(_)) | News::Switch(SwitchNews::Lost(_)));
    for is_switch in [false, true] {
        paused().block_on(async {
            let (news, mut inbox) = channel(WAITING);
            if is_switch {
                tokio::spawn(switch::follow(config.api.clone(), SETTLE, BTreeSet::new(), news));
            } else {
                tokio::spawn(gobgp::follow(config.gobgp.clone(), news));
            }
            let begun = Instant::now();
            for second in 0..4 {
                let news = inbox.recv().await.unwrap();
                assert!(is_lost(&news), "{news:?}");
                assert_eq!(begun.elapsed().as_secs(), second);
            }
        });
    }
    paused().block_on(async {
        let (news, mut inbox) = channel(WAITING);
        let mut process = Process::new(config, news);
        // Only a process that knows all routes replaces everything, even by nothing.
        process.machine.begin_routes();
        process.take(News::GoBgp(GoBgpNews::Listed));
        process.look();
        advance(SETTLE).await;
        process.look();
        assert!(process.knows_routes);
        process.take(News::Switch(SwitchNews::Events(vec![NetworkEvent::Synced])));
        let begun = Instant::now();
        for second in 1..4 {
            process.look();
            let news = inbox.recv().await.unwrap();
            assert!(matches!(news, News::Switch(SwitchNews::Changed { failed: true, .. })), "{news:?}");
            assert_eq!(begun.elapsed().as_secs(), second);
            process.take(news);
        }
    });
}
