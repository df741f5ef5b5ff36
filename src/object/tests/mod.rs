mod counts;
mod dropped;
mod random;
mod representations;

use super::Decoder;
use kube_core::TypeMeta;

fn decoder(api_version: &str, kind: &str) -> Decoder {
    Decoder::new(TypeMeta {
        api_version: api_version.into(),
        kind: kind.into(),
    })
}
