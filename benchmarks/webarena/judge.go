package webarena

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrNoJudge reports that the task needs a grading model and none is configured.
var ErrNoJudge = errors.New("no model that grades is configured: give the run a model of the role \"grader\"")

const judgeSystem = "You grade answers, fairly and strictly by what you are told."

// equivalent asks the judge whether an answer has the same meaning as the reference.
func (e *Evaluator) equivalent(ctx context.Context, question, reference, answer string) (bool, error) {
	said, err := e.ask(ctx, fmt.Sprintf(
		`An answer to a question has to be compared with a reference answer. It may be worded in another way; what counts is whether it means the same. The word N/A in any of them means that the task cannot be done.

Question: %s
Reference answer: %s
Answer to grade: %s

Reply with exactly one of these: correct, incorrect, partially correct.`, question, reference, answer))
	if err != nil || strings.Contains(said, "partially correct") || strings.Contains(said, "incorrect") {
		return false, err
	}
	return strings.Contains(said, "correct"), nil
}

// sameReason asks the judge whether the agent reported the actual reason why a task cannot be done.
func (e *Evaluator) sameReason(ctx context.Context, task, actual, reported string) (bool, error) {
	said, err := e.ask(ctx, fmt.Sprintf(
		`This task cannot be done, and below is why. Somebody tried it and reported why it did not work. Decide whether the report gives that reason, if only by implication.

Task: %s
Actual reason: %s
Reported reason: %s

Reply with one word: same if it does, different if not.`, task, actual, reported))
	if err != nil || strings.Contains(said, "different") {
		return false, err
	}
	return strings.Contains(said, "same"), nil
}

func (e *Evaluator) ask(ctx context.Context, user string) (string, error) {
	if e.Judge == nil {
		return "", ErrNoJudge
	}
	said, err := e.Judge.Ask(ctx, judgeSystem, user)
	return strings.ToLower(said), err
}
