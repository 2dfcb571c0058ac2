//! getopt(3) and getopt_long(3) as the `zpool` and `zfs` commands use them: options may stand behind operands, may be
//! clustered (`-Hp`), and take their argument from the same word or the next.

/// What options a command has.
#[derive(Clone, Copy, Debug)]
pub struct Grammar {
    /// getopt's string; a letter followed by `:` takes an argument. A leading `:` makes a missing argument an error
    /// of its own.
    pub short: &'static str,
    /// Long options without their dashes, each with the name it is reported under. One takes an argument when the
    /// letter that it is reported under does: in the same word behind `=`, or in the next.
    pub long: &'static [(&'static str, &'static str)],
}

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// A letter, or the name of [`Grammar::long`].
    pub name: String,
    /// Its argument; empty when it takes none.
    pub argument: String,
}

/// Options and operands, each in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options.
    pub options: Vec<Given>,
    /// The rest.
    pub operands: Vec<String>,
}

impl Parsed {
    /// Whether an option was given.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|given| given.name == name)
    }

    /// The last argument given for an option.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|given| given.name == name).map(|given| given.argument.as_str())
    }

    /// All arguments given for an option.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |given| given.name == name).map(|given| given.argument.as_str())
    }
}

/// Parses the words after the command's name. The error is the line OpenZFS prints before its usage. Where the
/// environment has `POSIXLY_CORRECT`, the first operand ends the options.
///
/// # Errors
/// An unknown option or one without its argument.
pub fn parse(grammar: Grammar, words: &[String]) -> Result<Parsed, String> {
    parse_as(grammar, words, std::env::var_os("POSIXLY_CORRECT").is_some())
}

/// As [`parse`]; `options_first` is POSIX's order.
///
/// # Errors
/// As [`parse`].
pub fn parse_as(grammar: Grammar, words: &[String], options_first: bool) -> Result<Parsed, String> {
    let (own_message, short) = match grammar.short.strip_prefix(':') {
        Some(rest) => (true, rest),
        None => (false, grammar.short),
    };
    let missing = |option: char| {
        if own_message {
            format!("missing argument for '{option}' option")
        } else {
            format!("invalid option '{option}'")
        }
    };
    let mut parsed = Parsed::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.operands.extend(words.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (long, value) = long.split_once('=').map_or((long, None), |(long, value)| (long, Some(value)));
            let invalid = || format!("invalid option '{word}'");
            let Some((_, name)) = grammar.long.iter().find(|(known, _)| *known == long) else {
                return Err(format!("invalid option '--{long}'"));
            };
            let takes_one = name.len() == 1 && short.contains(&format!("{name}:"));
            let argument = match (takes_one, value) {
                (true, Some(value)) => value.to_owned(),
                (true, None) => words.next().ok_or_else(invalid)?.clone(),
                (false, Some(_)) => return Err(invalid()),
                (false, None) => String::new(),
            };
            parsed.options.push(Given { name: (*name).to_owned(), argument });
        } else if word.len() > 1 && word.starts_with('-') {
            for (at, letter) in word[1..].char_indices() {
                let place = short.find(letter).filter(|_| letter != ':');
                let Some(place) = place else { return Err(format!("invalid option '{letter}'")) };
                let mut given = Given { name: letter.to_string(), argument: String::new() };
                if short[place + letter.len_utf8()..].starts_with(':') {
                    let rest = &word[1 + at + letter.len_utf8()..];
                    given.argument = if rest.is_empty() {
                        words.next().ok_or_else(|| missing(letter))?.clone()
                    } else {
                        rest.to_owned()
                    };
                    parsed.options.push(given);
                    break;
                }
                parsed.options.push(given);
            }
        } else {
            parsed.operands.push(word.clone());
            if options_first {
                parsed.operands.extend(words.by_ref().cloned());
            }
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: Grammar = Grammar { short: ":fndR:m:o:O:t:", long: &[] };
    const LIST: Grammar = Grammar { short: ":gjHLo:pPT:v", long: &[("json", "j"), ("json-int", "json-int")] };

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn clusters_arguments_and_order() {
        let parsed = parse(CREATE, &words("-fn -o ashift=12 -ocomment=x tank -O atime=off mirror -m/mnt a b")).unwrap();
        assert!(parsed.has("f") && parsed.has("n") && !parsed.has("d"));
        assert_eq!(parsed.all("o").collect::<Vec<_>>(), ["ashift=12", "comment=x"]);
        assert_eq!(parsed.last("m"), Some("/mnt"));
        assert_eq!(parsed.operands, words("tank mirror a b"));
    }

    #[test]
    fn long_options_have_the_name_of_their_short_ones() {
        let parsed = parse(LIST, &words("--json tank --json-int -Hp")).unwrap();
        assert!(parsed.has("j") && parsed.has("json-int") && parsed.has("H") && parsed.has("p"));
    }

    #[test]
    fn a_long_option_takes_an_argument_as_its_letter_does() {
        const TRIM: Grammar = Grammar { short: "dr:w", long: &[("rate", "r"), ("secure", "d")] };
        for line in ["--rate 5M tank", "--rate=5M tank", "-r5M tank"] {
            let parsed = parse(TRIM, &words(line)).unwrap();
            assert_eq!((parsed.last("r"), &*parsed.operands), (Some("5M"), &*words("tank")), "{line}");
        }
        assert!(parse(TRIM, &words("--rate")).is_err() && parse(TRIM, &words("--secure=1 tank")).is_err());
    }

    #[test]
    fn a_double_dash_ends_the_options() {
        let parsed = parse(LIST, &words("-H -- -p --json")).unwrap();
        assert_eq!(parsed.operands, words("-p --json"));
        assert!(!parsed.has("p"));
    }

    #[test]
    fn in_posix_order_the_first_operand_ends_the_options() {
        let parsed = parse_as(LIST, &words("-H tank -p"), true).unwrap();
        assert_eq!((parsed.operands, parsed.options.len()), (words("tank -p"), 1));
    }

    #[test]
    fn errors_are_worded_as_openzfs_words_them() {
        assert_eq!(parse(CREATE, &words("-x tank")).unwrap_err(), "invalid option 'x'");
        assert_eq!(parse(CREATE, &words("tank -o")).unwrap_err(), "missing argument for 'o' option");
        assert_eq!(parse(Grammar { short: "d:", long: &[] }, &words("-d")).unwrap_err(), "invalid option 'd'");
        assert_eq!(parse(LIST, &words("--nope")).unwrap_err(), "invalid option '--nope'");
        assert_eq!(parse(CREATE, &words("-:")).unwrap_err(), "invalid option ':'");
    }

    proptest::proptest! {
        #[test]
        fn any_words_are_parsed_or_refused(words in proptest::collection::vec("-{0,2}[a-zäé:=]{0,4}", 0..6)) {
            let _ = parse(CREATE, &words);
        }
    }
}
