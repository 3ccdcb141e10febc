//! The `If` field (RFC 4918 10.4): conditions on locks and entity tags, and lock tokens.

/// The lists of an `If` field. At least one of them has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfField<'h> {
    lists: Vec<List<'h>>,
}

/// Conditions on one resource. All of them have to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<'h> {
    /// The resource as written; `None` for the resource of the request.
    pub resource: Option<&'h str>,
    /// The conditions.
    pub conditions: Vec<Condition<'h>>,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'h> {
    /// Whether it must not hold.
    pub is_not: bool,
    /// The state of the resource that it requires.
    pub state: State<'h>,
}

/// A state that a resource may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'h> {
    /// It is covered by the lock with this token.
    Locked(&'h str),
    /// It has this entity tag.
    Etag(&'h str),
}

impl<'h> IfField<'h> {
    /// Parses the value of the field; `None` if it is malformed or has more than 64 conditions.
    #[must_use]
    pub fn parse(value: &'h [u8]) -> Option<Self> {
        let mut rest = str::from_utf8(value).ok()?.trim_start();
        let (mut lists, mut resource, mut count) = (Vec::new(), None, 0);
        let (mut is_tagged, mut is_bare) = (None, false);
        while !rest.is_empty() {
            if let Some(tagged) = rest.strip_prefix('<') {
                // A resource without a list, or one after a list without a resource.
                if is_bare || is_tagged == Some(lists.len()) {
                    return None;
                }
                let (link, after) = tagged.split_once('>')?;
                (resource, rest, is_tagged) = (Some(link), after.trim_start(), Some(lists.len()));
                continue;
            }
            is_bare |= resource.is_none();
            let (conditions, after) = list(rest)?;
            count += conditions.len();
            lists.push(List { resource, conditions });
            rest = after;
            if count > MAX_CONDITIONS {
                return None;
            }
        }
        (!lists.is_empty() && is_tagged != Some(lists.len())).then_some(Self { lists })
    }

    /// Returns the lists.
    #[must_use]
    pub fn lists(&self) -> &[List<'h>] {
        &self.lists
    }

    /// Returns the lock tokens in the field, which the client thereby submits.
    #[must_use]
    pub fn tokens(&self) -> Vec<&'h str> {
        let states = self.lists.iter().flat_map(|list| &list.conditions);
        let tokens = states.filter_map(|condition| match condition.state {
            State::Locked(token) => Some(token),
            State::Etag(_) => None,
        });
        tokens.collect()
    }

    /// Returns whether the resources are in the expected states, as reported by `is_in`.
    pub fn holds(&self, mut is_in: impl FnMut(Option<&str>, State<'_>) -> bool) -> bool {
        self.lists.iter().any(|list| {
            let mut conditions = list.conditions.iter();
            conditions.all(|one| is_in(list.resource, one.state) != one.is_not)
        })
    }
}

/// Parses `(Not <token> [etag] ...)`; returns the conditions and the rest of the text.
fn list(text: &str) -> Option<(Vec<Condition<'_>>, &str)> {
    let mut rest = text.strip_prefix('(')?.trim_start();
    let mut conditions = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return (!conditions.is_empty()).then_some((conditions, after.trim_start()));
        }
        let is_not = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
        if is_not {
            rest = rest[3..].trim_start();
        }
        let (state, after) = match rest.strip_prefix('<') {
            Some(token) => {
                token.split_once('>').map(|(token, rest)| (State::Locked(token), rest))?
            }
            None => {
                let etag = rest.strip_prefix('[')?;
                // A tag may contain brackets between its quotation marks.
                let begin = etag.find('"')? + 1;
                let end = begin + etag[begin..].find('"')? + 1;
                (State::Etag(&etag[..end]), etag[end..].strip_prefix(']')?)
            }
        };
        conditions.push(Condition { is_not, state });
        rest = after.trim_start();
    }
}

/// The maximum number of conditions in a field.
const MAX_CONDITIONS: usize = 64;
