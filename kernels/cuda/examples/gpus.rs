//! List of this machine's GPUs, or why there are none: `cargo run --release -p mortise-cuda --features cuda
//! --example gpus`. It links what a server with this feature links beside the rest, in seconds.

fn main() {
    match mortise_cuda::find() {
        Err(error) => println!("no GPU  {error}"),
        Ok(gpus) if gpus.is_empty() => println!("no GPU  the driver shows none"),
        Ok(gpus) => {
            for gpu in gpus {
                println!(
                    "cuda:{}  {}, {} MiB",
                    gpu.number,
                    gpu.name,
                    gpu.memory >> 20
                );
            }
        }
    }
}
