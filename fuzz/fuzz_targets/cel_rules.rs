#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| steersman_apiserver::fuzz::cel_rules(data));
