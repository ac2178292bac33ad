package run

import (
	"context"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// Run carries out a plan and returns when everything it started has ended. It returns an error
// unless all steps were done: that of the step that failed first, or that ctx has ended (canceled).
// Codes: invalid (the plan is none, or is refused), conflict (another holds a lease, or a machine was changed
// since the plan was made), insufficient_capacity, failed_precondition (a machine failed), timeout,
// unavailable, canceled.
func Run(_ context.Context, _ API, plan deploy.Plan, _ Options) (Result, error) {
	if len(plan.Refused) > 0 {
		return Result{}, bourse.Errorf(bourse.CodeInvalid, "the plan is refused: %s", strings.Join(plan.Refused, "; "))
	}
	return Result{}, bourse.Errorf(bourse.CodeInternal, "nothing carries out plans yet")
}
