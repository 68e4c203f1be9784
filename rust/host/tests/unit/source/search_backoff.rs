// SPDX-License-Identifier: GPL-2.0

//! Limits on how often something that is not there is searched for.

use mflow_algo::algo::source::search_backoff::SearchBackoff;

const HOUR_MS: u32 = 3_600_000;

/// Asks every millisecond, and lets each search be in vain; returns how many there were.
fn searches_in_vain(backoff: &SearchBackoff, from_ms: u32, ms: u32) -> u32 {
    let times = (0..ms).map(|ms| from_ms.wrapping_add(ms));
    let asks = times.filter(|&now_ms| {
        let asks = backoff.ask(now_ms);
        assert!(!asks || !backoff.ask(now_ms), "two searches at once");
        if asks {
            backoff.end(now_ms, false);
        }
        asks
    });
    // CAST: fewer than there are milliseconds.
    asks.count() as u32
}

#[test]
fn first_search_is_at_once_and_others_are_ever_rarer() {
    // Also where the clock wraps.
    for from_ms in [12_345, u32::MAX - 3_000] {
        let backoff = SearchBackoff::new();
        assert!(backoff.ask(from_ms));
        backoff.end(from_ms, false);
        assert!(!backoff.ask(from_ms.wrapping_add(99)));
        // 0.1, 0.2, ... 51.2 seconds, and then a minute each.
        let searches = searches_in_vain(&backoff, from_ms.wrapping_add(100), HOUR_MS);
        assert!((60..75).contains(&searches), "{searches}");
    }
}

#[test]
fn what_was_found_or_has_changed_is_searched_for_at_once() {
    for has_found in [true, false] {
        let backoff = SearchBackoff::new();
        searches_in_vain(&backoff, 1_000, 100_000);
        assert!(!backoff.ask(101_001));
        if has_found {
            backoff.end(101_001, true);
        } else {
            backoff.reset();
        }
        assert!(backoff.ask(101_002));
    }
}

/// A search that fails, or that nobody asked for, is not the last one.
#[test]
fn search_that_nobody_asked_for_delays_nobody() {
    let backoff = SearchBackoff::new();
    backoff.end(1_000, false);
    assert!(backoff.ask(1_000));
    assert!(!backoff.ask(2_000));
    backoff.end(2_000, false);
    assert!(!backoff.ask(2_050));
    assert!(backoff.ask(2_100));
}

#[test]
fn search_is_asked_for_until_it_ends() {
    let backoff = SearchBackoff::new();
    assert!(!backoff.is_asked());
    assert!(backoff.ask(5));
    assert!(backoff.is_asked());
    backoff.end(6, false);
    // In vain: the next one has to wait, and asks for nothing.
    assert!(!backoff.ask(7) && !backoff.is_asked());
}
