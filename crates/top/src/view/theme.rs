//! Styles. Without colours, bold, dim and reversed text tell the same.

use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colours: bool,
}

impl Theme {
    pub(crate) fn new(colours: bool) -> Self {
        Self { colours }
    }

    fn style(self, colour: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.colours { style.fg(colour) } else { style }
    }

    pub(crate) fn plain(self) -> Style {
        Style::new()
    }

    pub(crate) fn title(self) -> Style {
        self.style(Color::Cyan, Modifier::BOLD)
    }

    pub(crate) fn heading(self) -> Style {
        self.style(Color::Reset, Modifier::BOLD)
    }

    pub(crate) fn bad(self) -> Style {
        self.style(Color::Red, Modifier::BOLD)
    }

    pub(crate) fn good(self) -> Style {
        self.style(Color::Green, Modifier::empty())
    }

    pub(crate) fn faint(self) -> Style {
        self.style(Color::DarkGray, Modifier::empty())
    }

    pub(crate) fn curve(self) -> Style {
        self.style(Color::Blue, Modifier::empty())
    }

    pub(crate) fn key(self) -> Style {
        self.style(Color::Yellow, Modifier::BOLD)
    }

    /// Returns the style of the chosen row. It changes no foreground, since that would turn the gaps
    /// of a curve into blocks.
    pub(crate) fn chosen(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colours { style.bg(Color::Indexed(237)) } else { style }
    }

    pub(crate) fn chosen_tab(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style and the character of each share of a worker's time. The characters differ,
    /// so that the shares can be told apart without colours.
    pub(crate) fn shares(self) -> [(Style, &'static str, &'static str); 4] {
        [
            (self.style(Color::Green, Modifier::empty()), "█", "busy"),
            (self.style(Color::Blue, Modifier::empty()), "▒", "empty poll"),
            (self.style(Color::DarkGray, Modifier::empty()), "·", "idle"),
            (self.style(Color::Red, Modifier::empty()), "!", "unexplained"),
        ]
    }
}
