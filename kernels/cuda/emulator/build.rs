//! Compiles the kernels for the processor with a C++ compiler.

fn main() {
    println!("cargo:rerun-if-changed=emulator.cpp");
    println!("cargo:rerun-if-changed=include");
    println!("cargo:rerun-if-changed=../kernels");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        // What lies where a GPU could not read it ends the program.
        .flag_if_supported("-fsanitize=alignment")
        .flag_if_supported("-fsanitize-undefined-trap-on-error")
        .flag_if_supported("-ffp-contract=off")
        .include("include")
        .flag_if_supported("-Wno-unknown-pragmas")
        // A jump from one stack to another is what fibers are; the check takes it for an error.
        .flag_if_supported("-U_FORTIFY_SOURCE")
        .file("emulator.cpp")
        .compile("mortise_emulator");
}
