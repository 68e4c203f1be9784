// SPDX-License-Identifier: GPL-2.0

//! The package as a user installs it: with apt, on a system that has the distribution's kernel, where DKMS builds the module for
//! it; and removed again. That happens on this system as a mount namespace shows it, with a layer in memory over all that packages
//! write, so that nothing of it stays.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context as _, Result};

use super::{NAME, PACKAGE, ROOT_PROGRAMS};
use crate::kernel::distribution::Distribution;
use crate::paths;
use crate::step::Step;
use crate::tools;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Installed {
    /// The module that DKMS has put among those of the kernel.
    pub(crate) module: PathBuf,
    /// Whose key it has signed it with.
    pub(crate) signer: String,
}

/// Returns why this machine cannot have such a layer, if so.
pub(crate) fn refusal() -> Option<&'static str> {
    if !tools::is_root() {
        return Some("it takes root");
    }
    let mut trial = tools::command("unshare");
    trial.args(["--mount", "sh", "-ec", TRIAL]);
    match tools::output(&mut trial) {
        Ok(_) => None,
        Err(_) => Some("this machine allows no mounts with a layer in memory (overlay, tmpfs)"),
    }
}

/// Installs the package for this kernel and no other, and removes it. What fails leaves nothing, either.
pub(crate) fn install(package: &Path, kernel: &Distribution) -> Result<Installed> {
    let dir = tempfile::tempdir()?;
    let (layer, out) = (dir.path().join("layer"), dir.path().join("out"));
    fs::create_dir(&layer)?;
    fs::create_dir(&out)?;
    let mut script = tools::command("unshare");
    script
        // As in root's shell; we may run in another one's, and below cargo.
        .env("PATH", path())
        .env_remove("RUSTUP_TOOLCHAIN")
        .args(["--mount", "sh", "-euc", SCRIPT, NAME, PACKAGE])
        .args([&layer, &out])
        .arg(package)
        .arg(&kernel.home)
        .arg(&kernel.modules)
        .arg(&kernel.release)
        .args(&kernel.compilers);
    Step::new("install the package for DKMS", "dkms-install")
        .hint("the first `error` in the log tells; the end of it is DKMS's own log if the compiler failed")
        .run(&mut script)?;
    let signer = fs::read_to_string(out.join("signer"))?.trim().to_owned();
    fs::remove_file(out.join("signer"))?;
    let mut built = fs::read_dir(&out)?;
    let built = built.next().context("DKMS has built no module")??;
    let module = paths::cache_dir("module/dkms")?.join(built.file_name());
    fs::copy(built.path(), &module)?;
    ensure!(
        !signer.is_empty(),
        "DKMS has not signed {}, and kernels with secure boot refuse it then",
        module.display()
    );
    Ok(Installed { module, signer })
}

/// Returns where DKMS looks for programs: where the distribution's are, and where this machine's compiler is, if it is not where
/// the package expects root's.
fn path() -> String {
    let mut path = String::from("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let has_roots =
        tools::output(tools::command("sh").args(["-c", &format!("test -x {ROOT_PROGRAMS}/rustc")]));
    if has_roots.is_err() {
        let rustc = tools::find("rustc");
        if let Some(folder) = rustc.as_deref().and_then(Path::parent) {
            path = format!("{path}:{}", folder.display());
        }
    }
    path
}

/// A layer over a folder, in a namespace of its own.
const TRIAL: &str = "\
mount -t tmpfs mflow /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay mflow -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
";

/// `$0` is the module's name. The mounts end with the namespace.
const SCRIPT: &str = r#"
package=$1 layer=$2 out=$3 file=$4 home=$5 modules=$6 release=$7 compiler=${8-}

# Layers over folder $1, of which $3 is written and $2 only read.
cover() {
	mkdir -p "$layer/$3" "$layer/$3.work"
	mount -t overlay mflow -o "lowerdir=$2,upperdir=$layer/$3,workdir=$layer/$3.work" "$1"
}

mount -t tmpfs -o mode=755 mflow "$layer"
# The kernel's headers are where their package has them; its image and modules, too, and the compiler if apt here has none.
cover /usr "$home/usr:${compiler:+$compiler/usr:}/usr" usr
cover /etc /etc etc
cover /var /var var
# Where / and /usr are not one.
[ -L /lib ] || cover /lib /lib lib
mkdir -p /lib/modules
mount -t tmpfs -o mode=755 mflow /lib/modules
mkdir "/lib/modules/$release"
cover "/lib/modules/$release" "$modules" modules
# What was put there for other tests.
rm -rf "/lib/modules/$release/extra"
sed -i "s|$home/usr/src/|/usr/src/|" "/usr/src/linux-headers-$release/Makefile"
# No service of this machine is started or stopped.
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

export DEBIAN_FRONTEND=noninteractive
apt() {
	command=$1
	shift
	apt-get --quiet --yes --no-install-recommends -o APT::Sandbox::User= -o Dpkg::Use-Pty=0 "$command" "$@"
}
# Lists that are old name package files that are no longer on the mirror.
apt install --reinstall "$file" || { apt update && apt install --reinstall "$file"; } ||
	{ cat /var/lib/dkms/$0/*/build/make.log; exit 1; }

dkms status "$0"
module=$(modinfo -k "$release" -n "$0")
case $module in
*/updates/dkms/*) ;;
*)
	echo "error: DKMS has not installed the module, modprobe would take $module"
	exit 1
	;;
esac
cp "$module" "$out"
modinfo -k "$release" -F signer "$0" > "$out/signer"

apt purge "$package"
left=$(find /lib/modules /usr/src /var/lib/dkms -name "$0*" -not -path '*/kernel/*')
if [ -n "$left" ]; then
	echo "error: the package has left behind: $left"
	exit 1
fi
"#;
