//! Names of enums on the command line and in reports.

/// Defines the names of an enum's values.
macro_rules! names {
    ($type:ident: $($value:ident $name:literal),*) => {
        impl $type {
            /// All values.
            pub const ALL: &[$type] = &[$($type::$value),*];

            /// Returns the value's name on the command line and in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$value => $name),*
                }
            }
        }

        impl std::str::FromStr for $type {
            type Err = anyhow::Error;

            fn from_str(name: &str) -> anyhow::Result<Self> {
                let names: Vec<_> = $type::ALL.iter().map(|one| one.name()).collect();
                let found = $type::ALL.iter().copied().find(|one| one.name() == name);
                found.ok_or_else(|| anyhow::anyhow!("use one of {}", names.join(", ")))
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.pad(self.name())
            }
        }
    };
}
pub(crate) use names;
