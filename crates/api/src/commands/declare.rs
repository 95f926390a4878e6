//! The macro behind the table of commands.

/// Declares the commands. A row has these fields, in this order:
///
/// - `word`: the command's name in requests and on the command line;
/// - `right`: what a client needs;
/// - `arguments`: what a request has besides `cmd`, for the error message; the type is beside the name;
/// - `answer`: the type of the answer;
/// - `stream`: `lines` of a type, or binary `records`, if the answer begins a stream;
/// - `help`: one line for the command line and the documentation;
/// - `prints`: renders the answer. With it `straightline WORD` needs no code of its own.
macro_rules! commands {
    ($(
        $(#[$doc:meta])+
        $name:ident $(($request:ty))? {
            word: $word:literal,
            right: $right:ident,
            $(arguments: $arguments:literal,)?
            answer: $answer:ty,
            $(stream: $form:ident $($line:ty)?,)?
            help: $help:literal,
            $(prints: $text:path,)?
        }
    )+) => {
        /// The commands of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[$doc])+ $name,)+
        }

        /// A request: a command with its arguments. As JSON it is one line, such as
        /// `{"cmd":"link","port":"vm1","up":false}`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(tag = "cmd", rename_all = "kebab-case")]
        pub enum Request {
            $($(#[$doc])+ $name $(($request))?,)+
        }

        impl Command {
            /// All commands.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$name),+];

            /// Returns the command's name in a request.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            /// Returns the right that a client needs.
            #[must_use]
            pub fn right(self) -> Right {
                match self { $(Self::$name => Right::$right,)+ }
            }

            /// Returns what the command does, in one line.
            #[must_use]
            pub fn help(self) -> &'static str {
                match self { $(Self::$name => $help,)+ }
            }

            /// Returns the arguments that a request of this command has, in words.
            #[must_use]
            pub fn arguments(self) -> &'static str {
                match self { $(Self::$name => concat!($($arguments,)? commands!(@none $($arguments)?)),)+ }
            }

            /// Returns whether the command can begin a stream.
            #[must_use]
            pub fn has_stream(self) -> bool {
                match self { $(Self::$name => commands!(@is $($form)?),)+ }
            }

            /// Returns what renders an answer as text for a terminal, if `straightline WORD` only prints that.
            #[must_use]
            pub fn text(self) -> Option<AnswerText> {
                match self { $(Self::$name => commands!(@text $($text)?),)+ }
            }
        }

        impl Request {
            /// Returns the request's command.
            #[must_use]
            pub fn command(&self) -> Command {
                match self { $(commands!(@pattern $name $($request)?) => Command::$name,)+ }
            }
        }

        $(commands!(@ask $name $answer $(, $request)?);)+

        #[cfg(feature = "command-line")]
        impl Command {
            /// Adds the arguments of a request to a command of the command line.
            #[must_use]
            pub(crate) fn add_arguments(self, line: clap::Command) -> clap::Command {
                match self { $(Self::$name => commands!(@add line [$($text)?] $($request)?),)+ }
            }

            /// Returns a request with the arguments that the command line has.
            pub(crate) fn read_arguments(self, given: &clap::ArgMatches) -> Result<Request, clap::Error> {
                match self { $(Self::$name => commands!(@read given $name [$($text)?] $($request)?),)+ }
            }
        }

        #[cfg(test)]
        impl Command {
            /// Returns the schema of the answer.
            pub(crate) fn answer_schema(self, schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
                match self { $(Self::$name => schemas.subschema_for::<$answer>(),)+ }
            }

            /// Returns the schema of a line of the stream, if there is one.
            pub(crate) fn line_schema(self, schemas: &mut schemars::SchemaGenerator) -> Option<schemars::Schema> {
                match self { $(Self::$name => commands!(@line schemas $($($line)?)?),)+ }
            }
        }
    };

    (@is) => { false };
    (@is $form:ident) => { true };

    (@none) => { "it has no arguments" };
    (@none $arguments:literal) => { "" };

    (@text) => { None };
    (@text $text:path) => { Some(|json| serde_json::from_str(json).map(|answer| $text(&answer))) };

    (@pattern $name:ident) => { Self::$name };
    (@pattern $name:ident $request:ty) => { Self::$name(_) };

    (@ask $name:ident $answer:ty) => {
        impl Answer for $answer {
            const COMMAND: Command = Command::$name;
        }
    };
    // A request with arguments is more than its answer's type says.
    (@ask $name:ident $answer:ty, $request:ty) => {};

    (@add $line:ident [$text:path] $request:ty) => { <$request as clap::Args>::augment_args($line) };
    (@add $line:ident [$($text:path)?] $($request:ty)?) => { $line };

    (@read $given:ident $name:ident [$text:path] $request:ty) => {
        <$request as clap::FromArgMatches>::from_arg_matches($given).map(Request::$name)
    };
    (@read $given:ident $name:ident [$($text:path)?]) => { Ok(Request::$name) };
    (@read $given:ident $name:ident [] $request:ty) => {
        Err(clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, "not a command that only prints its answer\n"))
    };

    (@line $schemas:ident) => { None };
    (@line $schemas:ident $line:ty) => { Some($schemas.subschema_for::<$line>()) };
}
