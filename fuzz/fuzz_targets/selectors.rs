#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    steersman::fuzz::selectors(data);
    steersman_apiserver::fuzz::selectors(data);
});
