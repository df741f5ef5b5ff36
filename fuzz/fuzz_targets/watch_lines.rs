#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| steersman::fuzz::watch_lines(data));
