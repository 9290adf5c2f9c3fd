//! `crds FOLDER`: writes the `CustomResourceDefinition` files of the chart. Run by
//! `cargo xtask crds`.

use std::error::Error;
use std::path::PathBuf;

use spiderpool_api::crd;

/// First line of each file.
const NOTE: &str = "# Made by `cargo xtask crds` from the types in crates/api.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf = std::env::args_os()
        .nth(1)
        .ok_or("usage: crds FOLDER")?
        .into();
    std::fs::create_dir_all(&folder)?;
    for crd in crd::all() {
        let file = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let text = format!("{NOTE}{}", serde_saphyr::to_string(&crd)?);
        std::fs::write(folder.join(file), text)?;
    }
    Ok(())
}
