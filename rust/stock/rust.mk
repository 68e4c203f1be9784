# SPDX-License-Identifier: GPL-2.0
#
# The Rust half for a kernel that is built without Rust: rustc makes objects of the three crates (core, the few names of
# `kernel`, the module), as the kernel's own build does, and the linker keeps of them what the module needs.
#
# MFLOW_RUSTC: the compiler [default: what find-rustc.sh finds]. It has to have its sources.

rust-obj := $(obj)/rust/stock
rust-src := $(src)/rust

rust-find := MFLOW_RUSTC='$(MFLOW_RUSTC)' sh $(rust-src)/stock/find-rustc.sh
rust-found := $(shell $(rust-find) 2> /dev/null)
rustc-version := $(word 1,$(rust-found))
core-src := $(or $(word 2,$(rust-found)),$(rust-obj)/no-rustc)
rustc := $(wordlist 3,$(words $(rust-found)),$(rust-found))

# $(call rust-since,N,WORDS,OTHERS): WORDS with rustc 1.N and newer ones, OTHERS before.
rustc-since := $(shell seq 1 $(word 2,$(subst ., ,$(rustc-version)) 0))
rust-since = $(if $(filter $(1),$(rustc-since)),$(2),$(3))

# As scripts/generate_rust_target.rs of a kernel with Rust. The options had other names before 6.9.
rust-features := -mmx,+soft-float
rust-features += $(if $(CONFIG_MITIGATION_RETPOLINE)$(CONFIG_RETPOLINE),$(comma)+retpoline-external-thunk$(comma)+retpoline-indirect-branches$(comma)+retpoline-indirect-calls)
rust-features += $(if $(CONFIG_MITIGATION_SLS)$(CONFIG_SLS),$(comma)+harden-sls-ijmp$(comma)+harden-sls-ret)
rust-features := $(subst $(space),,$(rust-features))

# Room in front of each function, into which the kernel may write at boot (retbleed=stuff, cfi=fineibt).
rust-padding := $(CONFIG_FUNCTION_PADDING_BYTES)

# As Makefile and arch/x86/Makefile of such a kernel. Accesses to memory are checked where the kernel checks those of its own Rust:
# only then it has found out what the compiler has to be told for that.
rust-flags := -Copt-level=2 -Cpanic=abort -Cembed-bitcode=n -Clto=n -Ccodegen-units=1 \
	-Crelocation-model=static -Ccode-model=kernel -Cno-redzone=y -Cforce-unwind-tables=n -Csymbol-mangling-version=v0 \
	-Coverflow-checks=n -Cdebug-assertions=n -Ztune-cpu=generic -Zfunction-sections=y \
	-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2 \
	$(if $(CONFIG_X86_KERNEL_IBT),-Zcf-protection=branch $(call rust-since,93,-Cjump-tables=n,-Zno-jump-tables)) \
	$(if $(CONFIG_MITIGATION_RETHUNK)$(CONFIG_RETHUNK),-Zfunction-return=thunk-extern) \
	$(if $(CONFIG_CALL_PADDING),-Zpatchable-function-entry=$(rust-padding)$(comma)$(rust-padding)) \
	$(if $(CONFIG_FRAME_POINTER),-Cforce-frame-pointers=y) \
	$(if $(CONFIG_RUST),$(if $(CONFIG_KASAN),$(RUSTFLAGS_KASAN))) \
	--cfg mflow_stock --sysroot=/dev/null -Zunstable-options --target=$(rust-obj)/target.json

# What C calls.
rust-roots := mflow_rust_init mflow_rust_exit mflow_lane_poll mflow_lane_build mflow_deadline_expired mflow_file_read \
	mflow_file_write mflow_file_named mflow_tell_changes mflow_napi_found mflow_device_gone mflow_rescan_devices mflow_cpu_changed mflow_sample \
	mflow_place_lanes mflow_restage_flows mflow_run_park mflow_run_flush mflow_port_source \
	mflow_take_requests mflow_packet_verify mflow_note_path_fault mflow_note_receive_pkts mflow_tag_may_come

targets += rust/stock/target.json rust/stock/core.o rust/stock/compiler_builtins.o rust/stock/kernel.o rust/stock/mflow.o rust/stock/rust.o

# As scripts/generate_rust_target.rs of the kernel, which knows the same versions.
rust-abi := $(call rust-since,86,"rustc-abi": "$(call rust-since,98,softfloat,x86-softfloat)"$(comma))
rust-width := $(call rust-since,91,64,"64")

quiet_cmd_rust_target = GEN     $@
      cmd_rust_target = printf '%s\n' '{ "arch": "x86_64", $(rust-abi) \
	"data-layout": "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128", \
	"features": "$(rust-features)", "supported-sanitizers": ["kernel-address"], "llvm-target": "x86_64-linux-gnu", "target-pointer-width": $(rust-width) }' > $@

$(rust-obj)/target.json: FORCE
	$(call if_changed,rust_target)

# Another version in the compiler's place has all built again. Comments in lists of dependencies are for rustc; fixdep takes them
# for names of files before 6.8.
quiet_cmd_rust_crate = RUSTC $(if $(KBUILD_EXTMOD),[M]) $@
      cmd_rust_crate = RUSTC_BOOTSTRAP=1 MFLOW_HZ=$(CONFIG_HZ) RUSTC_VERSION=$(rustc-version) $(rustc) $(rust-flags) $(rust-crate-flags) \
	--crate-type rlib --crate-name $(basename $(notdir $@)) -L $(rust-obj) -Ztemps-dir=$(rust-obj) \
	--emit=obj=$@ --emit=metadata=$(rust-obj)/lib$(basename $(notdir $@)).rmeta --emit=dep-info=$(depfile) $< && \
	sed -i '/^\#/d' $(depfile)

# Says once what is missing, and not what follows from it.
$(rust-obj)/no-rustc:
	@$(rust-find)

$(rust-obj)/core.o: private rust-crate-flags := --edition=$(call rust-since,87,2024,2021) --cap-lints=allow --cfg no_fp_fmt_parse
$(rust-obj)/core.o: $(core-src) $(rust-obj)/target.json FORCE
	+$(call if_changed_dep,rust_crate)

$(rust-obj)/compiler_builtins.o: private rust-crate-flags := --edition=2021 --extern core
$(rust-obj)/compiler_builtins.o: $(rust-src)/stock/compiler_builtins.rs $(rust-obj)/core.o FORCE
	+$(call if_changed_dep,rust_crate)

$(rust-obj)/kernel.o: private rust-crate-flags := --edition=2021 --extern core
$(rust-obj)/kernel.o: $(rust-src)/stock/lib.rs $(rust-obj)/compiler_builtins.o FORCE
	+$(call if_changed_dep,rust_crate)

$(rust-obj)/mflow.o: private rust-crate-flags := --edition=2021 -Zcrate-attr=no_std --extern kernel
$(rust-obj)/mflow.o: $(rust-src)/mflow_main.rs $(rust-obj)/kernel.o FORCE
	+$(call if_changed_dep,rust_crate)

# As for each object that kbuild makes: where objtool does not wait for the whole module, it lists returns and retpolines for the
# kernel to patch, and makes data for the unwinder. Three crates are a linked object to it. The variable was objtool_args up to 6.2.
$(rust-obj)/rust.o: private objtool-args += --link
$(rust-obj)/rust.o: private objtool_args += --link

# objtool itself becomes a prerequisite.
quiet_cmd_rust_link = LD $(if $(KBUILD_EXTMOD),[M]) $@
      cmd_rust_link = $(LD) $(KBUILD_LDFLAGS) -r --gc-sections $(addprefix -u ,$(rust-roots)) -o $@ $(filter %.o,$^) $(cmd_objtool)

define rule_rust_link
	$(call cmd_and_savecmd,rust_link)
	$(call cmd,gen_objtooldep)
endef

$(rust-obj)/rust.o: $(rust-obj)/mflow.o $(rust-obj)/kernel.o $(rust-obj)/core.o FORCE
	$(call if_changed_rule,rust_link)
