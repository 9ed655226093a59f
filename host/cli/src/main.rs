//! The program `mortise`; see the library.

fn main() -> std::process::ExitCode {
    mortise::main()
}
