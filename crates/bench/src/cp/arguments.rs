//! What can be typed after `bench cp`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::copiers::Copier;
use super::original::Original;
use crate::arguments::{RunArgs, number, some_bytes};
use crate::scenarios::largest;
use crate::way::Way;

/// What can be typed after `bench cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Files of so many bytes, one after the other [default: 4G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', group = "original")]
    #[arg(value_parser = some_bytes)]
    pub(crate) sizes: Vec<u64>,

    /// So many files of 1 to 16 KiB, a hundred in each folder
    #[arg(long, value_name = "N", value_parser = number(1), group = "original")]
    pub(crate) files: Option<u32>,

    /// This folder, with everything in it
    #[arg(long, value_name = "DIR", group = "original")]
    pub(crate) tree: Option<PathBuf>,

    /// A file so long that has --data bytes between its holes, beside one that has nothing else
    #[arg(long, value_name = "SIZE", value_parser = some_bytes, group = "original")]
    pub(crate) sparse: Option<u64>,

    /// Bytes of the file with holes, a MiB in each place
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = some_bytes)]
    #[arg(requires = "sparse")]
    pub(crate) data: u64,

    /// Programs to measure; those that are not installed are left out [default: all that keep holes
    /// with --sparse, else all but underpass-dense]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) way: Vec<CopierArg>,

    /// Throw the original out of the caches before each sample: with root's rights out of all of
    /// them, else out of the page cache
    #[arg(long)]
    pub(crate) cold: bool,

    /// Where the copies are made, if not in --dir
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    pub(crate) no_count: bool,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The programs that copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CopierArg {
    /// cp -a of coreutils
    CpA,
    /// `underpass cp -a`
    Underpass,
    /// `underpass cp -a` of the file without holes
    UnderpassDense,
    /// xcp -r
    Xcp,
    /// fcp
    Fcp,
    /// rsync -a
    RsyncA,
    /// tar into tar
    Tar,
}

impl CpArgs {
    /// What is copied.
    pub(crate) fn original(&self) -> Original {
        match (self.files, &self.tree, self.sparse) {
            (Some(files), _, _) => Original::small_files(files),
            (_, Some(folder), _) => Original::Folder(folder.clone()),
            (_, _, Some(len)) => Original::Sparse { len, data: self.data.min(len) },
            _ => Original::File(largest(&self.sizes())),
        }
    }

    /// Sizes of the files, if files are copied.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        if self.sizes.is_empty() { vec![4 << 30] } else { self.sizes.clone() }
    }

    /// Who copies it.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let all = match self.sparse {
            Some(_) => [CopierArg::CpA, CopierArg::Underpass, CopierArg::UnderpassDense].as_slice(),
            None => &[
                CopierArg::CpA,
                CopierArg::Underpass,
                CopierArg::Xcp,
                CopierArg::Fcp,
                CopierArg::RsyncA,
                CopierArg::Tar,
            ],
        };
        let chosen = if self.way.is_empty() { all } else { &self.way };
        chosen.iter().map(|way| Way::from(*way)).collect()
    }

    /// Where its record goes.
    pub fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }
}

impl From<CopierArg> for Way {
    fn from(copier: CopierArg) -> Self {
        Self::Copier(match copier {
            CopierArg::Underpass => return Self::Underpass,
            CopierArg::CpA => Copier::Cp,
            CopierArg::UnderpassDense => Copier::Dense,
            CopierArg::Xcp => Copier::Xcp,
            CopierArg::Fcp => Copier::Fcp,
            CopierArg::RsyncA => Copier::Rsync,
            CopierArg::Tar => Copier::Tar,
        })
    }
}
