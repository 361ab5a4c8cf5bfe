// Package terminalbench runs tasks of Terminal-Bench v1 as they are: a folder with a task.yaml, a
// Dockerfile, mostly a docker-compose.yaml, a run-tests.sh, tests, and a solution.sh or
// solution.yaml. docs/harbor.md says, field by field, what is done with each and which test shows
// it.
//
// The agent works in the service client. When it has ended, run-tests.sh and the tests are put into
// /tests and run there as root; what they print is read by the task's parser, test by test. The
// exit code plays no part, as in the original.
//
// The tests run in the machine that the agent had, since a service may be the answer. What an agent
// can do to them there is made harder and, where it cannot be prevented, detected: docs/grading.md.
package terminalbench
