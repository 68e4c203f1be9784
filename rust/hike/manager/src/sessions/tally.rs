// SPDX-License-Identifier: GPL-2.0

//! The fates of the test packets of a session.
//!
//! | a packet | is counted as |
//! |---|---|
//! | that the kernel did not send | `unsent`; the next one has its number |
//! | that was sent | `sent`, and later as one of the next two |
//! | whose answer came in time | `answered` |
//! | without an answer in time | `lost` |
//!
//! | an answer | is counted as |
//! |---|---|
//! | to a packet whose answer has come, in time or not, and whose time has not passed for long | `duplicates` |
//! | to a packet whose time has passed, lost or answered | `late`, each of several |
//! | that is none of these | `refused`: another session, a number or a time that was not sent, or too short |
//!
//! The time counts at which the kernel got an answer, not that at which it is read here. An answer has the session of its packet, or 0 if
//! its reflector does not know RFC 8972; the time of sending, which comes back, tells sessions apart, too.
//!
//! An answer whose times cannot be, or that has seen this host's clock set, is an answer without a delay (`unmeasured`).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mflow_hike::stamp::packet::BYTES;
use mflow_hike::stamp::{Answer, Clock, ErrorEstimate, Format, Question, Stamp};

use super::delays::{Delays, Sample};
use crate::v1;

/// The time by which this host's two clocks may seem to go apart, as both cannot be read at once. What is set by less is not noticed.
const SLACK: Duration = Duration::from_millis(1);

/// A moment, by both clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// By the clock that tells the time: since 1970, in UTC.
    pub utc: Duration,
    /// By the clock that nobody sets.
    pub at: Instant,
}

impl Moment {
    /// Returns whether the clock that tells the time was set between this moment and a later one.
    fn was_set_until(&self, later: Moment) -> bool {
        let by_set = later.utc.checked_sub(self.utc);
        let by_other = later.at.saturating_duration_since(self.at);
        by_set.is_none_or(|by_set| by_set.abs_diff(by_other) > SLACK)
    }
}

/// The arrival of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time at which the kernel got it: since 1970, in UTC.
    pub utc: Duration,
    /// The moment at which it was read, which is later.
    pub read: Moment,
}

/// The state of a packet that may be answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    IsAnswered,
    /// Its answer has come after its time.
    IsLost,
}

/// A packet whose time has not passed yet.
#[derive(Debug)]
struct Asked {
    question: Question,
    sent: Moment,
    state: State,
}

/// The packets of a session.
#[derive(Debug)]
pub struct Tally {
    timeout: Duration,
    session: u16,
    /// The number of the next packet.
    next: u32,
    /// The packets of the session before that.
    sent: u64,
    /// Those whose time has not passed yet, by their numbers, which follow each other.
    asked: VecDeque<Asked>,
    counts: v1::SessionCounts,
    delays: Delays,
    /// The sum of the two-way delays of all packets that were measured.
    two_way_sum_ns: u64,
    clocks: Option<[ErrorEstimate; 2]>,
    hop_limit: Option<u8>,
    trouble: Option<String>,
}

impl Tally {
    /// Makes a tally in which answers have this much time.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            session: 0,
            next: 0,
            sent: 0,
            asked: VecDeque::new(),
            counts: v1::SessionCounts::default(),
            delays: Delays::default(),
            two_way_sum_ns: 0,
            clocks: None,
            hop_limit: None,
            trouble: None,
        }
    }

    /// Begins a new session, with this number, which is not 0: a socket has been opened.
    pub fn begin(&mut self, session: u16) {
        self.end();
        self.session = session;
        self.next = 0;
        self.sent = 0;
    }

    /// Ends the session: its socket is closed. Packets that have no answer will get none.
    pub fn end(&mut self) {
        self.counts.lost += self.waiting();
        self.asked.clear();
    }

    /// Returns the next packet, and what it asks.
    pub fn question(&self, utc: Duration, clock: Clock) -> (Question, [u8; BYTES]) {
        let question = Question {
            sequence: self.next,
            sent: Stamp::write(Format::Ntp, utc, clock.tai_ahead_s),
            error: clock.error,
        };
        (question, question.to_bytes(self.session))
    }

    /// Notes that a question was sent.
    pub fn sent(&mut self, question: Question, sent: Moment) {
        self.counts.sent += 1;
        self.sent += 1;
        self.next = self.next.wrapping_add(1);
        self.asked.push_back(Asked {
            question,
            sent,
            state: State::Waits,
        });
    }

    /// Notes that a question was not sent, and why.
    pub fn not_sent(&mut self, why: String) {
        self.counts.unsent += 1;
        self.trouble = Some(why);
    }

    /// Returns when the time of the next packet has passed.
    pub fn next_expiry(&self) -> Option<Instant> {
        Some(self.asked.front()?.sent.at + self.timeout)
    }

    /// Counts the packets as lost whose time has passed without an answer. All answers that the kernel had got by then must have been
    /// [received](Self::received).
    pub fn expire(&mut self, now: Instant) {
        while let Some(first) = self.asked.front() {
            if now.saturating_duration_since(first.sent.at) < self.timeout {
                return;
            }
            self.counts.lost += u64::from(first.state == State::Waits);
            self.asked.pop_front();
        }
    }

    /// Counts what came back, if it is an answer.
    pub fn received(&mut self, bytes: &[u8], came: Arrival, tai_ahead_s: u32) {
        let sessions = [self.session, 0];
        let answer = Answer::of_bytes(bytes).filter(|one| sessions.contains(&one.session));
        let Some(answer) = answer else {
            self.counts.refused += 1;
            return;
        };
        let number = answer.question.sequence;
        let first = self.next.wrapping_sub(self.still_asked());
        let place = number.wrapping_sub(first);
        // CAST: 32 bits.
        let Some(asked) = self.asked.get_mut(place as usize) else {
            // One half of all numbers is in front of the next one, and nothing behind it was sent.
            let is_past = self.next.wrapping_sub(number) <= u32::MAX / 2 && number != self.next;
            match is_past && u64::from(self.next.wrapping_sub(number)) <= self.sent {
                true => self.counts.late += 1,
                false => self.counts.refused += 1,
            }
            return;
        };
        if asked.question.sent != answer.question.sent {
            self.counts.refused += 1;
            return;
        }
        if asked.state != State::Waits {
            self.counts.duplicates += 1;
            return;
        }
        if after(asked.sent, came) >= self.timeout {
            asked.state = State::IsLost;
            self.counts.lost += 1;
            self.counts.late += 1;
            return;
        }
        asked.state = State::IsAnswered;
        self.counts.answered += 1;
        self.hop_limit = Some(answer.hop_limit);
        self.clocks = Some([asked.question.error, answer.error]);
        self.trouble = None;
        match sample(&answer, asked.sent, came, tai_ahead_s) {
            Some(sample) => {
                self.delays.add(sample);
                self.two_way_sum_ns += sample.two_way_ns.unsigned_abs();
            }
            None => self.counts.unmeasured += 1,
        }
    }

    fn still_asked(&self) -> u32 {
        // CAST: the packets of a minute at most.
        self.asked.len() as u32
    }

    fn waiting(&self) -> u64 {
        let waiting = self.asked.iter().filter(|one| one.state == State::Waits);
        // CAST: usize has 64 bits here.
        waiting.count() as u64
    }

    /// Returns all that is known.
    pub fn result(&self, name: &str, reflector: IpAddr) -> v1::SessionResult {
        let clocks = self.clocks.map(|clocks| {
            let errors = clocks.map(ErrorEstimate::error);
            let both = errors[0].zip(errors[1]).map(|(own, other)| own + other);
            v1::Clocks {
                own_synchronized: clocks[0].is_synchronized(),
                reflector_synchronized: clocks[1].is_synchronized(),
                // CAST: two centuries at most.
                error_ns: both.map(|error| error.as_nanos() as u64),
            }
        });
        v1::SessionResult {
            session: name.to_owned(),
            reflector: reflector.to_string(),
            counts: Some(self.counts),
            waiting: self.waiting(),
            // CAST: some thousand.
            samples: self.delays.count() as u64,
            two_way: self.delays.summary(|one| one.two_way_ns),
            forward: self.delays.summary(|one| one.forward_ns),
            backward: self.delays.summary(|one| one.backward_ns),
            two_way_sum_ns: self.two_way_sum_ns,
            clocks,
            hop_limit: self.hop_limit.map(u32::from),
            trouble: self.trouble.clone(),
        }
    }
}

/// Returns how long after a packet its answer came; if the clock was set in between, how long after it was read.
fn after(sent: Moment, came: Arrival) -> Duration {
    match came.utc.checked_sub(sent.utc) {
        Some(after) if !sent.was_set_until(came.read) => after,
        _ => came.read.at.saturating_duration_since(sent.at),
    }
}

/// Returns the delays that an answer shows; `None`: its times, or those of this host, cannot be.
fn sample(answer: &Answer, sent: Moment, came: Arrival, tai_ahead_s: u32) -> Option<Sample> {
    let read = |stamp: Stamp| stamp.read(answer.error.format(), tai_ahead_s, came.utc);
    let (received, answered) = (read(answer.received)?, read(answer.sent)?);
    let whole = came.utc.checked_sub(sent.utc)?;
    if sent.was_set_until(came.read) {
        return None;
    }
    let two_way = whole.checked_sub(answered.checked_sub(received)?)?;
    Some(Sample {
        two_way_ns: i64::try_from(two_way.as_nanos()).ok()?,
        forward_ns: difference_ns(sent.utc, received)?,
        backward_ns: difference_ns(answered, came.utc)?,
    })
}

/// Returns how much later the second time is; less than 0: earlier.
fn difference_ns(first: Duration, second: Duration) -> Option<i64> {
    let ns = i64::try_from(second.abs_diff(first).as_nanos()).ok()?;
    Some(if second < first { -ns } else { ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);
    const TAI_AHEAD_S: u32 = 37;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn clock() -> Clock {
        Clock {
            tai_ahead_s: TAI_AHEAD_S,
            error: ErrorEstimate::new(true, Format::Ntp, Duration::from_micros(5)),
        }
    }

    /// A session, and the moment when it began.
    struct Bed {
        tally: Tally,
        began: Instant,
    }

    impl Bed {
        fn new() -> Self {
            let mut tally = Tally::new(TIMEOUT);
            tally.begin(9);
            Self {
                tally,
                began: Instant::now(),
            }
        }

        fn moment(&self, after: Duration) -> Moment {
            Moment {
                utc: Duration::from_secs(1_800_000_000) + after,
                at: self.began + after,
            }
        }

        fn ask(&mut self, after: Duration) -> Question {
            let moment = self.moment(after);
            let (question, bytes) = self.tally.question(moment.utc, clock());
            assert_eq!(bytes[..4], question.sequence.to_be_bytes());
            assert_eq!(bytes[14..16], [0, 9]);
            self.tally.sent(question, moment);
            question
        }

        /// Returns the answer of a reflector that has got a question then, and has needed a millisecond for it.
        fn answer(&self, question: Question, received: Duration, format: Format) -> Answer {
            let stamp = |after| Stamp::write(format, self.moment(after).utc, TAI_AHEAD_S);
            Answer {
                sequence: question.sequence,
                sent: stamp(received + ms(1)),
                error: ErrorEstimate::new(false, format, Duration::from_micros(7)),
                session: 9,
                received: stamp(received),
                question,
                hop_limit: 254,
            }
        }

        fn arrival(&self, after: Duration) -> Arrival {
            let read = self.moment(after);
            Arrival {
                utc: read.utc,
                read,
            }
        }

        fn receive(&mut self, answer: &Answer, after: Duration) {
            let came = self.arrival(after);
            self.tally.received(&answer.to_bytes(), came, TAI_AHEAD_S);
        }

        fn expire(&mut self, after: Duration) {
            self.tally.expire(self.began + after);
        }

        fn result(&self) -> v1::SessionResult {
            self.tally.result("s", IpAddr::from([10, 0, 0, 1]))
        }
    }

    fn counts(result: &v1::SessionResult) -> v1::SessionCounts {
        result.counts.expect("it has some")
    }

    #[test]
    fn delays_are_those_between_the_times_in_either_format() {
        for format in [Format::Ntp, Format::Ptp] {
            let mut bed = Bed::new();
            let question = bed.ask(ms(0));
            let answer = bed.answer(question, ms(20), format);
            bed.receive(&answer, ms(26));
            let result = bed.result();
            let of = |delay: Option<v1::Delay>| delay.expect("one").median_ns;
            // NTP's parts of a second are no nanoseconds; they are read as those that were written.
            assert_eq!(of(result.two_way), 25_000_000);
            assert_eq!(of(result.forward), 20_000_000);
            assert_eq!(of(result.backward), 5_000_000);
            assert_eq!(result.two_way_sum_ns, 25_000_000);
            assert_eq!((result.samples, result.hop_limit), (1, Some(254)));
            let clocks = result.clocks.expect("both");
            assert!(clocks.own_synchronized && !clocks.reflector_synchronized);
            let error_ns = clocks.error_ns.expect("it is said");
            assert!((11_990..12_200).contains(&error_ns), "{error_ns}");
        }
    }

    #[test]
    fn each_packet_and_each_answer_is_counted_once() {
        let mut bed = Bed::new();
        let questions: Vec<_> = (0..5).map(|number| bed.ask(ms(10 * number))).collect();
        let answer = |bed: &Bed, number: usize| {
            bed.answer(questions[number], ms(10 * number as u64 + 1), Format::Ntp)
        };
        // In another order; the second one twice, and the first one after its time.
        for (number, after) in [(2, 40), (1, 41), (1, 42)] {
            let answer = answer(&bed, number);
            bed.receive(&answer, ms(after));
        }
        let late = answer(&bed, 0);
        bed.expire(ms(100));
        bed.receive(&late, ms(100));
        // Of another session; with a time that was not sent; of a number that was not; and cut.
        let good = answer(&bed, 3);
        let other_time = Question {
            sent: Stamp([1; 8]),
            ..good.question
        };
        let other_number = Question {
            sequence: 5,
            ..good.question
        };
        for bad in [
            Answer { session: 8, ..good },
            Answer {
                question: other_time,
                ..good
            },
            Answer {
                question: other_number,
                ..good
            },
        ] {
            bed.receive(&bad, ms(101));
        }
        let came = bed.arrival(ms(101));
        bed.tally
            .received(&good.to_bytes()[..43], came, TAI_AHEAD_S);
        let result = bed.result();
        assert_eq!(
            counts(&result),
            v1::SessionCounts {
                sent: 5,
                answered: 2,
                lost: 1,
                late: 1,
                duplicates: 1,
                refused: 4,
                unsent: 0,
                unmeasured: 0,
            }
        );
        assert_eq!(result.waiting, 2);
        bed.expire(ms(140));
        assert_eq!((counts(&bed.result()).lost, bed.result().waiting), (3, 0));
    }

    #[test]
    fn times_that_cannot_be_are_no_delays() {
        let mut bed = Bed::new();
        let question = bed.ask(ms(0));
        // The reflector has had it for longer than it was away.
        let mut answer = bed.answer(question, ms(1), Format::Ntp);
        answer.sent = Stamp::write(Format::Ntp, bed.moment(ms(50)).utc, TAI_AHEAD_S);
        bed.receive(&answer, ms(20));
        // It has sent the answer before it got the question.
        let question = bed.ask(ms(30));
        let mut answer = bed.answer(question, ms(35), Format::Ntp);
        answer.sent = Stamp::write(Format::Ntp, bed.moment(ms(34)).utc, TAI_AHEAD_S);
        bed.receive(&answer, ms(40));
        // This host's clock was set while the answer was on its way, forwards and backwards, by much, and by less than the delay.
        for set in [ms(1_000_060), ms(0), ms(57), ms(63)] {
            let question = bed.ask(ms(50));
            let answer = bed.answer(question, ms(51), Format::Ntp);
            let read = Moment {
                at: bed.began + ms(60),
                ..bed.moment(set)
            };
            let came = Arrival {
                utc: read.utc,
                read,
            };
            bed.tally.received(&answer.to_bytes(), came, TAI_AHEAD_S);
        }
        let result = bed.result();
        let counts = counts(&result);
        assert_eq!((counts.answered, counts.unmeasured), (6, 6));
        assert_eq!((result.samples, result.two_way), (0, None));
    }

    #[test]
    fn an_answer_counts_from_when_the_kernel_got_it() {
        let mut bed = Bed::new();
        let questions: Vec<_> = (0..3).map(|number| bed.ask(ms(number))).collect();
        // Both are read late: the first one came in time, the second one did not.
        for (number, came) in [(0, 90), (1, 102)] {
            let answer = bed.answer(questions[number], ms(50), Format::Ntp);
            let came = Arrival {
                read: bed.moment(ms(500)),
                ..bed.arrival(ms(came))
            };
            for _ in 0..2 {
                bed.tally.received(&answer.to_bytes(), came, TAI_AHEAD_S);
            }
        }
        // The clock was set, so that nobody can say when the third one came.
        let answer = bed.answer(questions[2], ms(50), Format::Ntp);
        let read = Moment {
            at: bed.began + ms(99),
            ..bed.moment(ms(5_000))
        };
        let came = Arrival {
            utc: read.utc,
            read,
        };
        bed.tally.received(&answer.to_bytes(), came, TAI_AHEAD_S);
        bed.expire(ms(500));
        let counts = counts(&bed.result());
        assert_eq!((counts.answered, counts.lost, counts.late), (2, 1, 1));
        assert_eq!((counts.duplicates, counts.unmeasured), (2, 1));
        assert_eq!(bed.tally.next_expiry(), None);
    }

    #[test]
    fn a_reflector_need_not_know_sessions() {
        let mut bed = Bed::new();
        let question = bed.ask(ms(0));
        assert_eq!(bed.tally.next_expiry(), Some(bed.began + TIMEOUT));
        let answer = Answer {
            session: 0,
            ..bed.answer(question, ms(1), Format::Ntp)
        };
        bed.receive(&answer, ms(3));
        // Of the session before, such an answer has the number of a packet of this one.
        bed.tally.begin(9);
        let question = bed.ask(ms(10));
        assert_eq!(question.sequence, 0);
        bed.receive(&answer, ms(12));
        // It has sent none with the numbers behind 0.
        let other = Answer {
            question: Question {
                sequence: u32::MAX,
                ..question
            },
            ..answer
        };
        bed.receive(&other, ms(12));
        let counts = counts(&bed.result());
        assert_eq!((counts.answered, counts.refused, counts.late), (1, 2, 0));
    }

    #[test]
    fn a_packet_that_was_not_sent_leaves_its_number_to_the_next() {
        let mut bed = Bed::new();
        let (first, _) = bed.tally.question(bed.moment(ms(0)).utc, clock());
        bed.tally.not_sent("no route".to_owned());
        assert_eq!(bed.result().trouble.as_deref(), Some("no route"));
        let question = bed.ask(ms(10));
        assert_eq!(question.sequence, first.sequence);
        let answer = bed.answer(question, ms(11), Format::Ntp);
        bed.receive(&answer, ms(13));
        let result = bed.result();
        assert_eq!((counts(&result).unsent, counts(&result).answered), (1, 1));
        assert_eq!(result.trouble, None);
        // What waits when the socket is opened again gets no answer.
        bed.ask(ms(20));
        bed.tally.begin(10);
        assert_eq!((counts(&bed.result()).lost, bed.result().waiting), (1, 0));
    }
}
