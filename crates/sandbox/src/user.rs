//! The user that the server switches to once its sockets are open.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, absolute};
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, fchown, mkdirat, openat};
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use rustix::thread::{
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::error::{SandboxError, UserError};
use crate::trusted::open_trusted;

/// A user, its group and its supplementary groups, according to the system's databases.
#[derive(Clone, Debug)]
pub struct User {
    /// The name as it was typed.
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid.is_root()
    }

    /// Creates a folder that only this user can use, and its missing parents. Root creates those
    /// that the user may not create, and gives them to the user.
    ///
    /// # Errors
    ///
    /// As chown(2), if a folder created by root cannot be given to the user.
    pub fn create_folder(&self, path: &Path) -> io::Result<()> {
        let ancestors: Vec<_> = path.ancestors().collect();
        for folder in ancestors.into_iter().rev() {
            let created = self.run_as(|| DirBuilder::new().mode(0o700).create(folder))?;
            // Where the user may create nothing, it cannot replace what root has created either.
            if created.is_err_and(|it| it.kind() == io::ErrorKind::PermissionDenied) {
                self.create_as_root(folder)?;
            }
        }
        Ok(())
    }

    /// Creates a folder as root, if the name is free, and gives it to this user.
    fn create_as_root(&self, folder: &Path) -> io::Result<()> {
        let path = absolute(folder)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        // Otherwise the user's own attempt reports what is wrong.
        if let Ok(above) = open_trusted(above, FOLDER, Mode::empty())
            && mkdirat(&above, name, Mode::RWXU).is_ok()
        {
            let created = openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
            fchown(created, Some(self.uid), Some(self.gid))?;
        }
        Ok(())
    }

    /// Runs `act` with the rights of this user on this thread, so that what it creates belongs to
    /// the user, and root's rights cannot be misused through files that the user has placed.
    /// Without root it just runs.
    ///
    /// # Errors
    ///
    /// As setresuid(2), setresgid(2) and setgroups(2).
    pub fn run_as<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        let (uid, gid) = (geteuid(), getegid());
        if !uid.is_root() {
            return Ok(act());
        }
        let groups = getgroups()?;
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(gid, self.gid, gid)?;
        set_thread_res_uid(uid, self.uid, uid)?;
        let done = act();
        set_thread_res_uid(uid, uid, uid)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_groups(&groups)?;
        Ok(done)
    }

    /// Switches to this user permanently. With `keeps_capabilities` the capabilities stay
    /// permitted, so that the caller can select from them.
    pub(crate) fn become_user(&self, keeps_capabilities: bool) -> Result<(), SandboxError> {
        if !geteuid().is_root() {
            return Err(SandboxError::NotRoot { user: self.name.clone() });
        }
        let become_user = || {
            set_keep_capabilities(keeps_capabilities)?;
            set_thread_groups(&self.groups)?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
            set_thread_res_uid(self.uid, self.uid, self.uid)
        };
        become_user().map_err(|source| SandboxError::ChangeUser { user: self.name.clone(), source })
    }
}

impl FromStr for User {
    type Err = UserError;

    /// Parses `NAME`, `NAME:GROUP`, or either as a number.
    fn from_str(text: &str) -> Result<Self, UserError> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let known = match user.parse::<u32>() {
            Ok(uid) => nix::unistd::User::from_uid(uid.into()),
            Err(_) => nix::unistd::User::from_name(user),
        };
        let known = known.map_err(UserError::UnreadableUsers)?;
        let uid = match (&known, user.parse()) {
            (Some(known), _) => known.uid.as_raw(),
            (None, Ok(uid)) => uid,
            (None, Err(_)) => return Err(UserError::UnknownUser(user.to_owned())),
        };
        let gid = match group {
            Some(group) => group_id(group)?,
            None => known.as_ref().map_or(uid, |known| known.gid.as_raw()),
        };
        if uid == u32::MAX || gid == u32::MAX {
            return Err(UserError::Invalid);
        }
        let groups = match &known {
            Some(known) => groups_of(&known.name, gid)?,
            None => vec![Gid::from_raw(gid)],
        };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(Self { name: text.to_owned(), uid, gid, groups })
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns the ID of a group given by name or number.
fn group_id(group: &str) -> Result<u32, UserError> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let known = nix::unistd::Group::from_name(group);
    let known = known.map_err(UserError::UnreadableGroups)?;
    known.map(|known| known.gid.as_raw()).ok_or_else(|| UserError::UnknownGroup(group.to_owned()))
}

/// Returns the groups of a user in the system's databases.
fn groups_of(name: &str, gid: u32) -> Result<Vec<Gid>, UserError> {
    let name = std::ffi::CString::new(name).map_err(|_| UserError::Nul)?;
    let groups = nix::unistd::getgrouplist(&name, gid.into());
    let groups = groups.map_err(UserError::UnreadableGroups)?;
    Ok(groups.into_iter().map(|gid| Gid::from_raw(gid.as_raw())).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn root_acts_with_the_groups_of_the_user_and_does_not_follow_its_links() {
        if !geteuid().is_root() {
            return eprintln!("skipped: only root can become another user");
        }
        let user: User = "54321".parse().unwrap();
        let before = getgroups().unwrap();
        assert_eq!(user.run_as(getgroups).unwrap().unwrap(), user.groups);
        assert_eq!(getgroups().unwrap(), before);
        let temporary = tempfile::tempdir().unwrap();
        let at = |name: &str| temporary.path().join(name);
        let owner = |name: &str| fs::metadata(at(name)).unwrap().uid();
        user.create_folder(&at("a/b")).unwrap();
        assert_eq!((owner(""), owner("a"), owner("a/b")), (0, 54321, 54321));
        fs::create_dir(at("target")).unwrap();
        symlink(at("target"), at("a/link")).unwrap();
        user.create_folder(&at("a/link/new")).unwrap();
        assert_eq!(fs::read_dir(at("target")).unwrap().count(), 0);
    }

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let root: User = "root".parse().unwrap();
        assert!(root.uid.is_root() && root.gid.is_root());
        let number: User = "0".parse().unwrap();
        assert!(number.uid.is_root());
        let other: User = "root:4242".parse().unwrap();
        assert_eq!(other.gid.as_raw(), 4242);
        let unknown: User = "54321".parse().unwrap();
        assert_eq!((unknown.uid.as_raw(), unknown.gid.as_raw()), (54321, 54321));
        assert_eq!(unknown.groups, [Gid::from_raw(54321)]);
    }

    #[test]
    fn a_user_that_does_not_exist_is_refused() {
        assert_eq!(
            "no-such-user".parse::<User>().unwrap_err().to_string(),
            "there is no user no-such-user on this machine"
        );
        assert_eq!(
            "root:no-such".parse::<User>().unwrap_err().to_string(),
            "there is no group no-such"
        );
        assert!("4294967295".parse::<User>().is_err());
        assert!("".parse::<User>().is_err());
    }
}
