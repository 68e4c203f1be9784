// SPDX-License-Identifier: GPL-2.0

//! The knobs and counters as files in `/sys/kernel/debug/mflow`, which netlink has, too, and the module parameters of the same names.

use super::flows;
use crate::algo::counters::Counter;
use crate::algo::knobs::device_command::{DeviceCommand, DeviceName, DEVICES_ALLOWED};
use crate::algo::knobs::{write_words, Knob, KnobError, Knobs, KNOBS};
use crate::algo::parked_amount::Amount;
use crate::algo::text::Text;
use crate::glue::control::configuration::{Configuration, MAX_DEVICES};
use crate::glue::control::device::MAX_SOURCES;
use crate::glue::control::xdp_attachment;
use crate::glue::ffi;
use crate::glue::locks::Rtnl;
use crate::glue::packet::pool::{self, Slots};
use crate::glue::runtime::MAX_CPUS;
use crate::glue::stack::way;
use core::ffi::CStr;
use core::fmt::{self, Write};
use kernel::ffi::{c_char, c_int, c_uint};
use kernel::prelude::*;

/// Declares the files that are no knobs, each with its name and mode. The comment of each is what operators read of it.
macro_rules! files {
    ($($(#[doc = $text:literal])* $variant:ident = $name:literal, $mode:literal;)*) => {
        /// The content of a file.
        #[derive(Clone, Copy)]
        enum File {
            Knob(Knob),
            $($(#[doc = $text])* $variant,)*
        }

        impl File {
            /// The files that are no knobs.
            const OTHERS: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns name and mode.
            const fn entry(self) -> (&'static CStr, u16) {
                match self {
                    Self::Knob(knob) => (knob.spec().name, 0o600),
                    $(Self::$variant => ($name, $mode),)*
                }
            }

            /// Returns the name for printing.
            fn name(self) -> &'static str {
                self.entry().0.to_str().unwrap_or_default()
            }
        }
    };
}

files! {
    /// The devices whose flows are split: `+NAME` opts one in, `-NAME` out.
    Devices = c"devices", 0o600;
    /// The core that may build packets, of each device and for how many of its queues. `lane`: a lane's. Any other word: the NIC's,
    /// and why. With our patches: `xdp`, `af_xdp`, `buffers`: XDP, AF_XDP or the kind of receive buffers wants it; `unasked`: the
    /// driver has not asked. On an unpatched kernel, which shows it with `build` `lane` only, and counts CPUs instead of queues:
    /// `xdp`: there is another XDP program; `no_xdp`: the driver takes none; `vlan_tags`: the device takes VLAN tags off packets;
    /// `namespace`: the device is in another namespace; `driver`: the driver says no. A line with `watched`, and without a number, is
    /// there with our patches while something looks at the packets that the device receives: its datagrams are not joined.
    Builders = c"builders", 0o444;
    /// Each fast flow: its gain from being split, or the reason why it is whole.
    // It names the addresses of those who send to this host.
    Flows = c"flows", 0o400;
    /// The CPUs that are lanes now, also with `cpus` `auto`.
    Lanes = c"lanes", 0o444;
    /// The counters.
    Stats = c"stats", 0o444;
    /// The reset of the counters: with 1 they begin from zero.
    Reset = c"reset", 0o200;
    /// The module's version, and its way into the kernel's stack: `patched` or `stock`.
    Version = c"version", 0o444;
}

const VERSION: &str = "0.2.0";

/// Returns all files. A file's place is the number by which C calls it.
fn all_files() -> impl Iterator<Item = File> + Clone {
    let knobs = KNOBS.iter().map(|spec| File::Knob(spec.knob));
    Iterator::chain(knobs, File::OTHERS.iter().copied())
}

fn file(number: c_uint) -> Option<File> {
    // CAST: a handful of files.
    all_files().nth(number as usize)
}

/// The files, as long as it lives.
pub(crate) struct Files(());

impl Files {
    /// Creates them. Returns `None` where the kernel was started without debugfs: all but the files is as ever.
    pub(crate) fn new() -> Result<Option<Self>> {
        // SAFETY: Process context.
        let created = kernel::error::to_result(unsafe { ffi::mflow_files_create() });
        match created {
            // With `debugfs=off` it is the first, with `debugfs=no-mount` the second.
            Err(error) if error == EPERM || error == ENOENT => return Ok(None),
            created => created?,
        }
        // From here on `drop` removes what has been created.
        let files = Self(());
        for (number, file) in all_files().enumerate() {
            let (name, mode) = file.entry();
            // CAST: a handful of files.
            // SAFETY: The name is static.
            let err = unsafe { ffi::mflow_file_add(name.as_ptr().cast(), mode, number as c_uint) };
            kernel::error::to_result(err)?;
        }
        Ok(Some(files))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // SAFETY: Created in `new`; waits for readers and writers.
        unsafe { ffi::mflow_files_remove() };
    }
}

/// The one who is told what is allowed, and other remarks on what has been set.
enum Hearer<'a, 'b> {
    /// All who read the kernel's log.
    Log,
    /// The one who has asked, in the answer.
    Asker(&'a mut Text<'b>),
}

impl Hearer<'_, '_> {
    fn tell(&mut self, sentence: fmt::Arguments<'_>) {
        match self {
            Self::Log => complain(sentence),
            Self::Asker(text) => {
                if !text.write_sentence(sentence) {
                    // There are more of them than fit.
                    complain(sentence);
                }
            }
        }
    }
}

/// Logs one line, rate-limited.
fn complain(args: core::fmt::Arguments<'_>) {
    let mut buffer = [0; 200];
    let mut text = Text::new(&mut buffer);
    // What does not fit is left out.
    let _ = text.write_fmt(args);
    let line = text.as_bytes();
    // CAST: at most 200.
    // SAFETY: C prints that many bytes.
    unsafe { ffi::mflow_complain(line.as_ptr().cast(), line.len() as c_uint) };
}

fn errno(error: KnobError) -> Error {
    match error {
        KnobError::Syntax | KnobError::Combination(_) => EINVAL,
        KnobError::Range => ERANGE,
    }
}

/// Sets one knob; says what is allowed if it cannot be.
fn set_knob(
    configuration: &mut Configuration,
    rtnl: &Rtnl,
    knob: Knob,
    text: &[u8],
    hearer: &mut Hearer<'_, '_>,
) -> Result {
    let mut knobs: Knobs = configuration.knobs;
    if let Err(error) = knobs.set(knob, text) {
        match error {
            KnobError::Combination(misfit) => hearer.tell(format_args!("{misfit}")),
            KnobError::Syntax | KnobError::Range => {
                hearer.tell(format_args!("{}", knob.spec().allowed()));
            }
        }
        return Err(errno(error));
    }
    if let Some(refusal) = way::refusal(&knobs) {
        hearer.tell(format_args!("{refusal}"));
        return Err(EINVAL);
    }
    let knobs = configuration.with_lanes(knobs);
    // SAFETY: Any context.
    let offline = |cpu: &u32| !unsafe { ffi::mflow_cpu_is_online(*cpu) };
    if knobs.cpus != configuration.knobs.cpus {
        if let Some(cpu) = knobs.cpus.iter().find(offline) {
            hearer.tell(format_args!(
                "cpus: CPU {cpu} is not online; allowed are online CPUs"
            ));
            return Err(ERANGE);
        }
    }
    configuration.apply(rtnl, knobs)
}

fn set_devices(
    configuration: &mut Configuration,
    rtnl: &Rtnl,
    command: Result<DeviceCommand, KnobError>,
    hearer: &mut Hearer<'_, '_>,
) -> Result {
    let (name, result) = match command {
        Ok(DeviceCommand::Add(name)) => (name, configuration.add_device(rtnl, &name)),
        Ok(DeviceCommand::Remove(name)) => (name, configuration.remove_named_device(rtnl, &name)),
        Err(error) => {
            hearer.tell(format_args!("{DEVICES_ALLOWED}"));
            return Err(errno(error));
        }
    };
    // Other devices may be at other nodes.
    let result = result.and_then(|()| configuration.place_lanes(rtnl));
    match result {
        Err(error) if error == ENODEV => {
            hearer.tell(format_args!(
                "devices: there is no {name} here to add or remove"
            ));
        }
        Err(error) if error == ENOSPC => {
            hearer.tell(format_args!(
                "devices: at most {MAX_DEVICES}, each with at most {MAX_SOURCES} queues"
            ));
        }
        _ => {}
    }
    result
}

/// Returns the value of a module parameter, if it was given one; an error if the C half declares none of that name.
fn param(name: &CStr) -> Result<Option<&'static [u8]>> {
    let mut text = core::ptr::null();
    // SAFETY: The name ends in NUL, and there is room for the answer.
    kernel::error::to_result(unsafe { ffi::mflow_param(name.as_ptr().cast(), &mut text) })
        .inspect_err(|_| {
            pr_err!("c-shims/module/mflow_files.c declares no parameter {name:?}\n")
        })?;
    // SAFETY: The kernel keeps parameters as long as the module, each with its NUL.
    Ok((!text.is_null()).then(|| unsafe { CStr::from_ptr(text.cast()) }.to_bytes()))
}

/// Applies the module parameters. The first knob is `enabled`: it comes last and starts what the others describe.
pub(crate) fn apply_params() -> Result {
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    if let Some(names) = param(File::Devices.entry().0)? {
        for name in DeviceName::list(names) {
            let command = name.map(DeviceCommand::Add);
            set_devices(&mut configuration, &rtnl, command, &mut Hearer::Log)?;
        }
    }
    for spec in KNOBS.iter().rev() {
        if let Some(text) = param(spec.name)? {
            set_knob(&mut configuration, &rtnl, spec.knob, text, &mut Hearer::Log)?;
        }
    }
    drop((configuration, rtnl));
    follow_redirections(&mut Hearer::Log);
    Ok(())
}

fn write_stats(
    configuration: &Configuration,
    slots: &Slots,
    to: &mut Text<'_>,
) -> core::fmt::Result {
    for counter in Counter::ALL {
        writeln!(
            to,
            "{} {}",
            counter.name(),
            configuration.total(slots, *counter)
        )?;
    }
    let mut parked = Amount::default();
    slots.iter().for_each(|slot| parked += slot.parked());
    writeln!(to, "parked_pkts {}", parked.pkts())?;
    writeln!(to, "parked_bytes {}", parked.bytes())?;
    writeln!(to, "ring_bytes {}", pool::ring_bytes().all())?;
    // SAFETY: Any context.
    writeln!(to, "returned_bytes {}", unsafe {
        ffi::mflow_returned_bytes()
    })?;
    for (name, for_lanes) in [("freed_pkts", false), ("freed_for_lanes_pkts", true)] {
        // SAFETY: Any context.
        writeln!(to, "{name} {}", unsafe { ffi::mflow_freed_pkts(for_lanes) })?;
    }
    // SAFETY: Any context.
    writeln!(to, "stack_max_bytes {}", unsafe {
        ffi::mflow_stack_max_bytes()
    })?;
    configuration.write_orders(to)?;
    for cpu in 0..MAX_CPUS {
        if let Some(pkts) = configuration.lane_pkts(cpu) {
            writeln!(to, "lane_cpu{cpu}_pkts {pkts}")?;
            // CAST: MAX_CPUS fits.
            let bytes = pool::ring_bytes().waiting_for(cpu as u32);
            writeln!(to, "lane_cpu{cpu}_ring_bytes {bytes}")?;
        }
    }
    Ok(())
}

fn read(file: File, to: &mut Text<'_>) -> core::fmt::Result {
    let _rtnl = Rtnl::lock();
    let configuration = Configuration::lock();
    let slots = pool::slots();
    match file {
        File::Knob(knob) => writeln!(to, "{}", configuration.knobs.get(knob)),
        File::Devices => configuration.write_devices(to),
        File::Builders => configuration.write_builders(to),
        File::Flows => {
            flows::write_flows(&configuration, slots, to);
            Ok(())
        }
        File::Lanes => writeln!(to, "{}", configuration.knobs.cpus),
        File::Stats => write_stats(&configuration, slots, to),
        File::Reset => Ok(()),
        File::Version => {
            writeln!(to, "{} abi {} {}", VERSION, ffi::MFLOW_ABI, way::NAME)?;
            match way::MISSING {
                "" => Ok(()),
                missing => writeln!(to, "{missing}"),
            }
        }
    }
}

/// Fills in what a reader of a file sees. Process context.
#[no_mangle]
unsafe extern "C" fn mflow_file_read(number: c_uint, text: *mut c_char, size: usize) -> isize {
    let Some(file) = file(number) else {
        return -(kernel::bindings::EINVAL as isize);
    };
    // SAFETY: C gives a buffer of that size.
    let buffer = unsafe { core::slice::from_raw_parts_mut(text.cast::<u8>(), size) };
    let mut text = Text::new(buffer);
    // What does not fit is left out.
    let _ = read(file, &mut text);
    // CAST: at most the buffer's size.
    text.len() as isize
}

fn write(file: File, text: &[u8], hearer: &mut Hearer<'_, '_>) -> Result {
    let result = write_locked(file, text, hearer);
    follow_redirections(hearer);
    result
}

/// Starts redirecting packets if lanes are to build them and need redirection for that. Process context, no locks held.
fn follow_redirections(hearer: &mut Hearer<'_, '_>) {
    xdp_attachment::follow(|name, refusal| {
        hearer.tell(format_args!(
            "build: packets of {name} are built by the NIC's core: {}",
            refusal.sentence()
        ));
    });
}

fn write_locked(file: File, text: &[u8], hearer: &mut Hearer<'_, '_>) -> Result {
    let rtnl = Rtnl::lock();
    let mut configuration = Configuration::lock();
    match file {
        File::Knob(knob) => {
            if knob == Knob::Build {
                configuration.retry_redirections();
            }
            set_knob(&mut configuration, &rtnl, knob, text, hearer)
        }
        File::Devices => {
            let command = DeviceCommand::parse(text);
            set_devices(&mut configuration, &rtnl, command, hearer)
        }
        File::Reset => {
            if text.trim_ascii() != b"1" {
                hearer.tell(format_args!("reset: allowed 1"));
                return Err(EINVAL);
            }
            configuration.reset_counters(pool::slots());
            Ok(())
        }
        File::Builders | File::Flows | File::Lanes | File::Stats | File::Version => {
            hearer.tell(format_args!("{}: can only be read", file.name()));
            Err(EPERM)
        }
    }
}

/// Takes what was written to a file; 0 or a negative error number. Sentences go into `said`, which has room for `said_bytes`, or into
/// the log if that is null. Process context.
#[no_mangle]
unsafe extern "C" fn mflow_file_write(
    number: c_uint,
    text: *const c_char,
    len: usize,
    said: *mut c_char,
    said_bytes: usize,
) -> c_int {
    let Some(file) = file(number) else {
        return -(kernel::bindings::EINVAL as c_int);
    };
    // SAFETY: C gives that many bytes.
    let text = unsafe { core::slice::from_raw_parts(text.cast::<u8>(), len) };
    let result = if said.is_null() {
        write(file, text, &mut Hearer::Log)
    } else {
        // SAFETY: C gives a buffer of that size, which nobody else uses.
        let said = unsafe { core::slice::from_raw_parts_mut(said.cast::<u8>(), said_bytes) };
        write(file, text, &mut Hearer::Asker(&mut Text::new(said)))
    };
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// The sentence that says which files there are.
struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("name: allowed ")?;
        write_words(f, all_files().map(File::name))
    }
}

/// Returns the number of the file of this name, or `-ENOENT`; then a sentence goes into `said`, which has room for `said_bytes`. Any
/// context.
#[no_mangle]
unsafe extern "C" fn mflow_file_named(
    name: *const c_char,
    said: *mut c_char,
    said_bytes: usize,
) -> c_int {
    // SAFETY: C gives a name that ends in NUL.
    let name = unsafe { CStr::from_ptr(name.cast()) };
    match all_files().position(|file| file.entry().0 == name) {
        // CAST: a handful of files.
        Some(number) => number as c_int,
        None => {
            // SAFETY: C gives a buffer of that size, which nobody else uses.
            let said = unsafe { core::slice::from_raw_parts_mut(said.cast::<u8>(), said_bytes) };
            // It fits.
            let _ = Text::new(said).write_sentence(Names);
            ENOENT.to_errno()
        }
    }
}

ffi::check_export!(mflow_file_read, mflow_file_write, mflow_file_named);
