//! Failpoints: an agent that kills itself at one step of an ADD or DEL, so that tests can prove that
//! the next one heals what is left (feature `failpoints`, design section 4).
//!
//! Owns the points: [`add_step`] and [`del_step`] stand around each step, once in the whole crate.
//! Without the feature they are the step alone, and nothing else of this module is compiled.

/// Runs a step of an ADD, named by its variant of [`Step`](spiderpool_ipam::plan::Step).
#[cfg(feature = "failpoints")]
macro_rules! add_step {
    ($step:ident, $work:expr) => {
        $crate::failpoint::around(
            $crate::failpoint::Point::Add(::spiderpool_ipam::plan::Step::$step),
            $work,
        )
        .await
    };
}

/// Runs a step of an ADD.
#[cfg(not(feature = "failpoints"))]
macro_rules! add_step {
    ($step:ident, $work:expr) => {
        $work.await
    };
}

/// Runs a step of a DEL, named by its variant of [`DelStep`](spiderpool_ipam::plan::DelStep).
#[cfg(feature = "failpoints")]
macro_rules! del_step {
    ($step:ident, $work:expr) => {
        $crate::failpoint::around(
            $crate::failpoint::Point::Del(::spiderpool_ipam::plan::DelStep::$step),
            $work,
        )
        .await
    };
}

/// Runs a step of a DEL.
#[cfg(not(feature = "failpoints"))]
macro_rules! del_step {
    ($step:ident, $work:expr) => {
        $work.await
    };
}

pub(crate) use {add_step, del_step};

#[cfg(feature = "failpoints")]
pub use armed::{ENV, Failpoint, FailpointError, Point, When, arm};

#[cfg(feature = "failpoints")]
pub(crate) use armed::around;

#[cfg(feature = "failpoints")]
mod armed {
    use std::ffi::OsStr;
    use std::future::Future;
    use std::str::FromStr;
    use std::sync::OnceLock;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use spiderpool_ipam::plan::{DelStep, Step};

    /// Environment variable that says where: `<step>:before` or `<step>:after`.
    pub const ENV: &str = "SPIDERPOOL_FAILPOINT";

    static ARMED: OnceLock<Failpoint> = OnceLock::new();

    /// A step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Point {
        /// Of an ADD.
        Add(Step),
        /// Of a DEL.
        Del(DelStep),
    }

    impl Point {
        /// Name of the step; unique over both lists.
        #[must_use]
        pub const fn name(self) -> &'static str {
            match self {
                Self::Add(step) => step.name(),
                Self::Del(step) => step.name(),
            }
        }

        /// All steps, ADD's first.
        pub fn all() -> impl Iterator<Item = Self> {
            let add = Step::ALL.into_iter().map(Self::Add);
            add.chain(DelStep::ALL.into_iter().map(Self::Del))
        }
    }

    /// On which side of the step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum When {
        /// It has not begun.
        Before,
        /// It is done, and nothing has happened since.
        After,
    }

    /// Where the process kills itself.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Failpoint {
        /// The step.
        pub point: Point,
        /// The side.
        pub when: When,
    }

    /// The variable says something else.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    #[error(
        "{ENV}: {value:?} is no <step>:before and no <step>:after; steps of ADD: {add}; steps of DEL: {del}",
        add = names(Step::ALL.map(Point::Add)),
        del = names(DelStep::ALL.map(Point::Del))
    )]
    pub struct FailpointError {
        value: String,
    }

    fn names<const N: usize>(points: [Point; N]) -> String {
        points.map(Point::name).join(", ")
    }

    impl FromStr for Failpoint {
        type Err = FailpointError;

        fn from_str(value: &str) -> Result<Self, FailpointError> {
            let parsed = || {
                let (name, when) = value.split_once(':')?;
                let when = match when {
                    "before" => When::Before,
                    "after" => When::After,
                    _ => return None,
                };
                let point = Point::all().find(|point| point.name() == name)?;
                Some(Self { point, when })
            };
            parsed().ok_or_else(|| FailpointError {
                value: value.to_owned(),
            })
        }
    }

    /// Arms the process by the variable's value; `None`: it runs on.
    ///
    /// # Errors
    /// [`FailpointError`] lists what there is.
    pub fn arm(value: Option<&OsStr>) -> Result<(), FailpointError> {
        let Some(value) = value else { return Ok(()) };
        let failpoint: Failpoint = value.to_string_lossy().parse()?;
        let armed = ARMED.get_or_init(|| failpoint);
        let (step, when) = (armed.point.name(), armed.when);
        tracing::warn!(step, ?when, "this agent kills itself at a step: {ENV}");
        Ok(())
    }

    /// The step between its two points.
    pub(crate) async fn around<T>(point: Point, work: impl Future<Output = T>) -> T {
        reach(point, When::Before);
        let done = work.await;
        reach(point, When::After);
        done
    }

    fn reach(point: Point, when: When) {
        if ARMED.get() != Some(&Failpoint { point, when }) {
            return;
        }
        tracing::error!(step = point.name(), ?when, "failpoint reached");
        // No unwinding, no destructor, no flush: as the kernel's OOM killer ends a process.
        kill(Pid::this(), Signal::SIGKILL).ok();
        std::process::abort();
    }

    #[cfg(test)]
    mod tests {
        use std::collections::BTreeSet;

        use super::*;

        #[test]
        fn every_step_has_a_name_of_its_own_and_both_sides() {
            let names: BTreeSet<_> = Point::all().map(Point::name).collect();
            assert_eq!(names.len(), Step::ALL.len() + DelStep::ALL.len());
            for point in Point::all() {
                for (word, when) in [("before", When::Before), ("after", When::After)] {
                    let text = format!("{}:{word}", point.name());
                    assert_eq!(text.parse(), Ok(Failpoint { point, when }));
                }
            }
        }

        #[test]
        fn anything_else_is_refused_with_the_list() {
            for value in [
                "",
                "link",
                "link:",
                "Link:before",
                "link:during",
                "x:before",
            ] {
                let error = value.parse::<Failpoint>().unwrap_err().to_string();
                for part in [ENV, &format!("{value:?}"), "preflight", "remove_file"] {
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
        }
    }
}
