//! Authentication by bearer token, client certificate, or an identity set in-process.

use crate::{
    kubeconfig::Credentials,
    status::{Details, Failure, Reason, Result, qualified},
};
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use std::{fmt, hint::black_box, sync::Arc};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// User, uid and groups of a caller.
///
/// An identity in a request's extensions overrides every other authentication. In-process clients
/// can set it there; for TLS connections the server sets it from the client's certificate. It
/// cannot be sent over a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Name of the user, such as `alice` or `system:serviceaccount:default:web`.
    pub user: String,
    /// Distinguishes users that had the same name at different times. Often empty.
    pub uid: String,
    /// Groups of the user. Authenticated users are in `system:authenticated`.
    pub groups: Vec<String>,
}

impl Identity {
    /// Creates the identity of an authenticated user.
    pub fn new<G: Into<String>>(
        user: impl Into<String>,
        uid: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        Self {
            user: user.into(),
            uid: uid.into(),
            groups,
        }
    }

    /// Returns `system:admin` in the group `system:masters`, which may do everything.
    pub fn admin() -> Self {
        Self::new("system:admin", "", ["system:masters"])
    }

    /// Returns `system:anonymous`, the identity of callers without credentials.
    pub fn anonymous() -> Self {
        Self {
            user: "system:anonymous".into(),
            uid: String::new(),
            groups: vec![UNAUTHENTICATED.into()],
        }
    }

    /// Returns whether this is a caller without credentials.
    pub fn is_anonymous(&self) -> bool {
        self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }
}

/// Authenticates requests by bearer token. Without tokens every caller is the
/// [administrator](Identity::admin).
#[derive(Clone, Default)]
pub struct Authenticator {
    tokens: Option<Arc<[(Token, Identity)]>>,
}

/// A bearer token. It has no `Debug`, and comparing it takes a time that depends only on its
/// length.
struct Token(String);

impl Token {
    fn matches(&self, other: &str) -> bool {
        let own = self.0.as_bytes();
        let other = other.as_bytes();
        let differ = own
            .iter()
            .zip(other)
            .fold(0, |differ, (own, other)| black_box(differ | (own ^ other)));
        own.len() == other.len() && differ == 0
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.tokens.as_ref().map(|tokens| tokens.len());
        f.debug_struct("Authenticator")
            .field("tokens", &tokens)
            .finish()
    }
}

impl Authenticator {
    /// Reads the tokens of a kube-apiserver's `--token-auth-file`: lines of
    /// `token,user,uid,"group1,group2"`.
    ///
    /// As in kube-apiserver, the groups may be missing, further columns are ignored, lines with an
    /// empty token are skipped, and the last line of a token applies.
    ///
    /// Errors: a line has fewer than three columns or is not valid CSV.
    pub fn from_token_file(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens: Vec<(Token, Identity)> = Vec::new();
        for (line, record) in text
            .lines()
            .enumerate()
            .filter(|(_, record)| !record.is_empty())
        {
            let invalid = |reason| TokenFileError {
                line: line + 1,
                reason,
            };
            let fields = fields(record).map_err(invalid)?;
            let [token, user, uid, rest @ ..] = &fields[..] else {
                return Err(invalid(
                    "fewer than three columns; write `token,user,uid,\"group1,group2\"`",
                ));
            };
            let groups = rest
                .first()
                .map(|groups| groups.split(','))
                .into_iter()
                .flatten();
            let identity = Identity::new(user, uid, groups.filter(|group| !group.is_empty()));
            if !token.is_empty() {
                tokens.push((Token(token.clone()), identity));
            }
        }
        Ok(Self {
            tokens: Some(tokens.into()),
        })
    }

    /// Creates an authenticator with one random token, which is the administrator's. Returns the
    /// token as credentials.
    pub fn with_random_token() -> (Self, Credentials) {
        let token = format!(
            "{:032x}{:032x}",
            rand::random::<u128>(),
            rand::random::<u128>()
        );
        let entry = (Token(token.clone()), Identity::admin());
        (
            Self {
                tokens: Some([entry].into()),
            },
            Credentials::Token(token),
        )
    }

    /// Returns whether callers need a token.
    pub fn is_configured(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the identity in the request's extensions, or else that of its token.
    ///
    /// Errors: 401 if the token is unknown.
    pub(crate) fn authenticate(&self, request: &Parts) -> Result<Identity> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Ok(identity.clone());
        }
        let Some(tokens) = &self.tokens else {
            return Ok(Identity::admin());
        };
        let Some(presented) = bearer(request) else {
            return Ok(Identity::anonymous());
        };
        // Compares all tokens, so that the time does not depend on which one matches. The last
        // match applies.
        let known = tokens.iter().fold(None, |found, (token, identity)| {
            token.matches(presented).then_some(identity).or(found)
        });
        known
            .cloned()
            .ok_or_else(|| Failure::new(401, Reason::Unauthorized, "Unauthorized"))
    }
}

/// Returns the bearer token, `None` if it is empty or the scheme is another one.
fn bearer(request: &Parts) -> Option<&str> {
    // A header that is not text cannot match, but must be rejected rather than be anonymous.
    let header = request
        .headers
        .get(AUTHORIZATION)?
        .to_str()
        .unwrap_or("Bearer \u{fffd}");
    let (scheme, token) = header.split_once(' ')?;
    let token = token.split(' ').next().filter(|token| !token.is_empty())?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Error of reading a token file. It names the line and never shows its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFileError {
    /// Number of the line, starting at 1.
    pub line: usize,
    reason: &'static str,
}

impl fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot parse line {} of the token file: {}",
            self.line, self.reason
        )
    }
}

impl std::error::Error for TokenFileError {}

/// Splits a line of CSV into its fields.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let mut field = String::new();
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = quoted;
            loop {
                let (text, after) = rest.split_once('"').ok_or("a quote is not closed")?;
                field.push_str(text);
                rest = after;
                // Two quotes escape one.
                let Some(more) = after.strip_prefix('"') else {
                    break;
                };
                field.push('"');
                rest = more;
            }
        } else {
            let (text, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            if text.contains('"') {
                return Err("a quote inside a field that does not begin with one");
            }
            field.push_str(text);
            rest = after;
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(fields),
            None => return Err("text between a closing quote and the next comma"),
        }
    }
}

/// Returns a 403 because `identity` may not `verb` the resource.
///
/// `resource` may include a subresource (`widgets/status`). An empty `namespace` means the cluster
/// scope.
pub(crate) fn forbidden_for(
    identity: &Identity,
    verb: &str,
    group: &str,
    resource: &str,
    name: &str,
    namespace: &str,
) -> Box<Failure> {
    let scope = if namespace.is_empty() {
        "at the cluster scope".into()
    } else {
        format!("in the namespace \"{namespace}\"")
    };
    let user = &identity.user;
    let reason = format!(
        "User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {scope}"
    );
    let plural = resource
        .split_once('/')
        .map_or(resource, |(plural, _)| plural);
    let mut failure = Failure::forbidden(group, plural, name, &reason);
    if name.is_empty() {
        failure.message = format!("{} is forbidden: {reason}", qualified(group, plural));
    }
    failure
}

/// Rejects a request on behalf of another user, which needs RBAC. Without this check the request
/// would run with the permissions of the caller.
///
/// Errors: 403 if there is an `Impersonate-*` header.
pub(crate) fn check_impersonation(identity: &Identity, headers: &HeaderMap) -> Result<()> {
    let impersonated = headers.iter().find_map(|(header, name)| {
        let resource = match header.as_str().strip_prefix("impersonate-")? {
            "user" => "users",
            "group" => "groups",
            "uid" => "uids",
            _ => "userextras",
        };
        Some((resource, name.to_str().unwrap_or_default()))
    });
    let Some((resource, name)) = impersonated else {
        return Ok(());
    };
    let mut failure = forbidden_for(identity, "impersonate", "", resource, name, "");
    failure
        .message
        .push_str(": the server does not support impersonation; remove the Impersonate-* headers");
    Err(failure)
}

/// Returns a 403 because `identity` may not `verb` a path that is not a resource.
pub(crate) fn forbidden_path_for(identity: &Identity, verb: &str, path: &str) -> Box<Failure> {
    let message = format!(
        "forbidden: User \"{}\" cannot {verb} path \"{path}\"",
        identity.user
    );
    Failure::new(403, Reason::Forbidden, message).about(Details::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const FILE: &str = "t0ps3cret,alice,u1,\"dev,ops\"\r\n\nother,bob,u2\nquo\"\"ted,x,y\n";

    fn request(authorization: &[u8]) -> Parts {
        Request::builder()
            .header(AUTHORIZATION, authorization)
            .body(())
            .unwrap()
            .into_parts()
            .0
    }

    fn request_without_token() -> Parts {
        Request::new(()).into_parts().0
    }

    fn read(text: &str) -> Authenticator {
        Authenticator::from_token_file(text).unwrap()
    }

    #[test]
    fn a_known_token_gives_its_user_and_groups_and_system_authenticated() {
        let auth = read("t0ps3cret,alice,u1,\"dev,ops\",ignored\r\n\nother,bob,u2\n");
        let alice = auth.authenticate(&request(b"bearer t0ps3cret")).unwrap();
        assert_eq!(alice, Identity::new("alice", "u1", ["dev", "ops"]));
        assert_eq!(alice.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(
            auth.authenticate(&request(b"Bearer other")).unwrap().groups,
            ["system:authenticated"]
        );
    }

    #[test]
    fn an_unknown_token_is_401_and_no_token_is_anonymous() {
        let auth = read("t0ps3cret,alice,u1\n");
        for header in [
            &b"Bearer t0ps3cre"[..],
            b"Bearer t0ps3crets",
            b"Bearer T0ps3cret",
            b"Bearer \xff",
        ] {
            let failure = auth.authenticate(&request(header)).unwrap_err();
            assert_eq!(
                (failure.code, failure.reason),
                (401, Some(Reason::Unauthorized))
            );
            assert_eq!(failure.message, "Unauthorized");
        }
        for parts in [
            request_without_token(),
            request(b"Basic YTpi"),
            request(b"Bearer "),
            request(b"Bearer"),
        ] {
            let anonymous = auth.authenticate(&parts).unwrap();
            assert_eq!(anonymous.groups, ["system:unauthenticated"]);
            assert!(anonymous.is_anonymous() && anonymous.user == "system:anonymous");
        }
    }

    #[test]
    fn without_tokens_every_caller_is_admin() {
        let auth = Authenticator::default();
        assert_eq!(
            auth.authenticate(&request_without_token()).unwrap(),
            Identity::admin()
        );
        assert_eq!(
            auth.authenticate(&request(b"Bearer x")).unwrap(),
            Identity::admin()
        );
        assert!(
            !auth.is_configured() && read("").is_configured() && !Identity::admin().is_anonymous()
        );
    }

    #[test]
    fn a_random_token_authenticates_the_admin_and_differs_each_time() {
        let [
            (auth, Credentials::Token(token)),
            (_, Credentials::Token(other)),
        ] = [(); 2].map(|()| Authenticator::with_random_token())
        else {
            panic!("credentials are not a token")
        };
        assert!(token.len() == 64 && token != other && auth.is_configured());
        assert_eq!(
            auth.authenticate(&request(format!("Bearer {token}").as_bytes()))
                .unwrap(),
            Identity::admin()
        );
        assert_eq!(
            auth.authenticate(&request(format!("Bearer {other}").as_bytes()))
                .unwrap_err()
                .code,
            401
        );
    }

    #[test]
    fn an_identity_in_the_extensions_overrides_the_token() {
        let mut parts = request(b"Bearer wrong");
        let carol = Identity::new("carol", "", ["dev"]);
        parts.extensions.insert(carol.clone());
        assert_eq!(read("t,alice,u").authenticate(&parts).unwrap(), carol);
    }

    #[test]
    fn the_last_line_of_a_token_applies_and_an_empty_token_is_skipped() {
        let auth = read("t,alice,1\n,nobody,2\nt,bob,3\n");
        assert_eq!(
            auth.authenticate(&request(b"Bearer t")).unwrap().user,
            "bob"
        );
    }

    #[test]
    fn quoted_fields_contain_commas_and_quotes() {
        assert_eq!(
            fields(r#""a,b","say ""x""",,c"#).unwrap(),
            ["a,b", r#"say "x""#, "", "c"]
        );
    }

    #[test]
    fn an_error_names_the_line_and_does_not_show_its_token() {
        for (text, line, reason) in [
            (FILE, 4, "a quote inside a field"),
            ("t0ps3cret,alice\n", 1, "fewer than three columns"),
            ("a,b,c\n\"t0ps3cret,alice,u1\n", 2, "not closed"),
            ("\"t0ps3cret\"x,alice,u1\n", 1, "text between"),
        ] {
            let error = Authenticator::from_token_file(text).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(
                error.line == line && shown.contains(reason) && !shown.contains("t0ps3cret"),
                "{shown}"
            );
        }
    }

    #[test]
    fn tokens_are_not_shown_by_debug() {
        assert_eq!(
            format!("{:?}", read("t0ps3cret,alice,u1\n")),
            "Authenticator { tokens: Some(1) }"
        );
    }

    #[test]
    fn forbidden_messages_equal_those_of_kube_apiserver() {
        let alice = Identity::new("alice", "", [""; 0]);
        let failure = forbidden_for(&alice, "get", "", "configmaps", "x", "g1");
        assert_eq!(
            failure.message,
            "configmaps \"x\" is forbidden: User \"alice\" cannot get resource \"configmaps\" in API group \"\" in the \
             namespace \"g1\""
        );
        assert_eq!(
            (failure.code, failure.reason),
            (403, Some(Reason::Forbidden))
        );
        assert_eq!(
            forbidden_for(
                &Identity::anonymous(),
                "list",
                "example.com",
                "widgets/status",
                "",
                ""
            )
            .message,
            "widgets.example.com is forbidden: User \"system:anonymous\" cannot list resource \"widgets/status\" in API \
             group \"example.com\" at the cluster scope"
        );
    }
}
