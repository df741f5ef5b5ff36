//! Client certificates with one organization per group, from which API servers read user and
//! groups.
//!
//! The certificate is encoded here because a distinguished name of rcgen holds only one value of
//! each type.

use rcgen::{Error, KeyPair, PublicKeyData, SigningKey};
use yasna::{
    DERWriter, Tag, construct_der,
    models::ObjectIdentifier,
    tags::{TAG_GENERALIZEDTIME, TAG_UTCTIME},
};

const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];
const EXTENDED_KEY_USAGE: &[u64] = &[2, 5, 29, 37];
const CLIENT_AUTH: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 2];
/// Signature algorithm of the keys that [`KeyPair::generate`] creates.
const ECDSA_WITH_SHA256: &[u64] = &[1, 2, 840, 10045, 4, 3, 2];

/// Returns the DER of a client certificate for `user` in `groups` with the key `key`.
///
/// `issuer` is the common name of the authority and `issuer_key` its key.
pub(crate) fn sign(
    issuer: &str,
    issuer_key: &KeyPair,
    user: &str,
    groups: &[&str],
    key: &KeyPair,
) -> Result<Vec<u8>, Error> {
    let to_sign = construct_der(|writer| {
        writer.write_sequence(|writer| {
            // Version 3, the one with extensions.
            writer
                .next()
                .write_tagged(Tag::context(0), |writer| writer.write_u8(2));
            writer
                .next()
                .write_bigint_bytes(&rand::random::<[u8; 16]>(), true);
            write_algorithm(writer.next());
            write_name(writer.next(), issuer, &[]);
            // The validity of rcgen's certificates. The authority's key does not outlive the
            // process anyway.
            writer.next().write_sequence(|writer| {
                let mut write = |tag, time: &[u8]| {
                    writer
                        .next()
                        .write_tagged_implicit(tag, |writer| writer.write_bytes(time));
                };
                write(TAG_UTCTIME, b"750101000000Z");
                write(TAG_GENERALIZEDTIME, b"40960101000000Z");
            });
            write_name(writer.next(), user, groups);
            writer.next().write_der(&key.subject_public_key_info());
            writer.next().write_tagged(Tag::context(3), |writer| {
                writer.write_sequence(|writer| {
                    writer.next().write_sequence(|writer| {
                        writer
                            .next()
                            .write_oid(&ObjectIdentifier::from_slice(EXTENDED_KEY_USAGE));
                        let usages = construct_der(|writer| {
                            writer.write_sequence(|writer| {
                                writer
                                    .next()
                                    .write_oid(&ObjectIdentifier::from_slice(CLIENT_AUTH));
                            });
                        });
                        writer.next().write_bytes(&usages);
                    });
                });
            });
        });
    });
    let signature = issuer_key.sign(&to_sign)?;
    Ok(construct_der(|writer| {
        writer.write_sequence(|writer| {
            writer.next().write_der(&to_sign);
            write_algorithm(writer.next());
            writer
                .next()
                .write_bitvec_bytes(&signature, signature.len() * 8);
        });
    }))
}

fn write_algorithm(writer: DERWriter<'_>) {
    writer.write_sequence(|writer| {
        writer
            .next()
            .write_oid(&ObjectIdentifier::from_slice(ECDSA_WITH_SHA256));
    });
}

fn write_name(writer: DERWriter<'_>, common_name: &str, organizations: &[&str]) {
    writer.write_sequence(|writer| {
        let organizations = organizations
            .iter()
            .map(|organization| (ORGANIZATION, *organization));
        for (kind, value) in organizations.chain([(COMMON_NAME, common_name)]) {
            writer.next().write_set(|writer| {
                writer.next().write_sequence(|writer| {
                    writer.next().write_oid(&ObjectIdentifier::from_slice(kind));
                    writer.next().write_utf8_string(value);
                });
            });
        }
    });
}
