//! The output of tests. While tests run side by side, the lines of each are kept until its end.

use std::cell::RefCell;

thread_local! {
    /// The lines of the test on this thread, while they are kept.
    static KEPT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prints a line of the running test, with the arguments of `println!`.
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::line(&format!($($argument)*)) };
}
pub(crate) use say;

/// Prints a line, or keeps it for the end of the test.
pub(crate) fn line(text: &str) {
    KEPT.with_borrow_mut(|kept| match kept {
        Some(kept) => *kept += &format!("{text}\n"),
        None => println!("{text}"),
    });
}

/// Runs a body, and returns its lines beside its result. The body may not unwind.
pub(crate) fn keep<T>(body: impl FnOnce() -> T) -> (T, String) {
    KEPT.set(Some(String::new()));
    let result = body();
    (result, KEPT.take().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_keeps_its_own_lines() {
        let lines = |name: &'static str| move || keep(|| (0..100).for_each(|number| say!("{name} {number}"))).1;
        let both = ["one", "other"].map(|name| std::thread::spawn(lines(name)));
        for (thread, name) in both.into_iter().zip(["one", "other"]) {
            let text = thread.join().expect("no panic");
            assert_eq!(text.lines().count(), 100);
            assert!(text.lines().all(|line| line.starts_with(name)), "{text}");
        }
        assert_eq!(KEPT.take(), None);
    }
}
