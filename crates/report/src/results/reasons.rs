//! Counting of reasons: those that differ only in their numbers are one.

/// Reasons, each with what it is about and how often it was given.
///
/// Reasons that differ only in their numbers are one, with the smallest and the largest of each number.
///
/// ```
/// use straightline_report::results::Reasons;
///
/// let mut reasons = Reasons::default();
/// for why in ["it took 383 ns, more than 100", "it took 91.5 ns, more than 100", "nothing came"] {
///     reasons.add("ours", why);
/// }
/// let all: Vec<_> = reasons.all().collect();
/// let took = "it took 91.5 to 383 ns, more than 100".to_owned();
/// assert_eq!(all, [("ours", took, 2), ("ours", "nothing came".to_owned(), 1)]);
/// ```
#[derive(Clone, Debug)]
pub struct Reasons<K> {
    kinds: Vec<(K, Kind, usize)>,
}

/// A reason in parts: words, then a number, and so on. It ends with words, which may be empty.
#[derive(Clone, Debug)]
struct Kind {
    words: Vec<String>,
    /// The smallest and the largest text of each number.
    numbers: Vec<[String; 2]>,
}

impl<K> Default for Reasons<K> {
    fn default() -> Self {
        Reasons { kinds: Vec::new() }
    }
}

impl<K: PartialEq + Clone> Reasons<K> {
    /// Adds a reason that was given for `of`.
    pub fn add(&mut self, of: K, why: &str) {
        let new = Kind::of(why);
        match self.kinds.iter_mut().find(|(known, kind, _)| *known == of && kind.words == new.words) {
            Some((_, kind, count)) => {
                kind.widen(new);
                *count += 1;
            }
            None => self.kinds.push((of, new, 1)),
        }
    }

    /// Returns the reasons in their order of appearance, each with its count.
    pub fn all(&self) -> impl Iterator<Item = (K, String, usize)> + '_ {
        self.kinds.iter().map(|(of, kind, count)| (of.clone(), kind.text(), *count))
    }
}

impl Kind {
    fn of(text: &str) -> Self {
        let mut kind = Kind { words: Vec::new(), numbers: Vec::new() };
        let mut words = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            // Digits in a name, such as `vm1`, are not a number.
            let begins = words.chars().next_back().is_none_or(|before| before == ' ' || before == '(');
            let length = if begins { number(rest) } else { 0 };
            if length > 0 {
                let (text, behind) = rest.split_at(length);
                kind.words.push(std::mem::take(&mut words));
                kind.numbers.push([text.to_owned(), text.to_owned()]);
                rest = behind;
            } else {
                words.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        kind.words.push(words);
        kind
    }

    fn widen(&mut self, other: Kind) {
        let value = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        for ([least, most], [text, _]) in self.numbers.iter_mut().zip(other.numbers) {
            if value(&text) < value(least) {
                *least = text;
            } else if value(&text) > value(most) {
                *most = text;
            }
        }
    }

    fn text(&self) -> String {
        let number = |[least, most]: &[String; 2]| {
            if least == most { least.clone() } else { format!("{least} to {most}") }
        };
        let numbers = self.numbers.iter().map(number).chain([String::new()]);
        self.words.iter().zip(numbers).map(|(words, number)| format!("{words}{number}")).collect()
    }
}

/// Returns the length of the number that a text begins with; 0 if there is none.
fn number(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let fraction = text[whole..].strip_prefix('.').map_or(0, digits);
    if whole == 0 || fraction == 0 { whole } else { whole + 1 + fraction }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_other_reasons_stay_apart() {
        let mut reasons = Reasons::default();
        for (of, why) in [("a", "port vm1 lost 3."), ("a", "port vm2 lost 4."), ("b", "port vm1 lost 5."), ("a", "")] {
            reasons.add(of, why);
        }
        let all: Vec<String> = reasons.all().map(|(of, why, count)| format!("{of} {count}: {why}")).collect();
        assert_eq!(all, ["a 1: port vm1 lost 3.", "a 1: port vm2 lost 4.", "b 1: port vm1 lost 5.", "a 1: "]);
    }

    proptest! {
        #[test]
        fn one_reason_stays_as_it_is(text in "[ (a-z0-9.µ]{0,30}") {
            prop_assert_eq!(Kind::of(&text).text(), text);
        }
    }
}
