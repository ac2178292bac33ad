package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Unfillable returns the refusal of an order whose machine could not be started:
// why, as its run ended and its record says.
func (ms *Machines) Unfillable(ctx context.Context, order *bourse.Order, id bourse.MachineID, err error) *bourse.Refusal {
	m, unread := ms.state.Machine(ctx, id)
	known := unread == nil
	reason, about := unfillable(order, known && m.Image != nil, bourse.CodeOf(err))
	r := ms.host.Refusal(reason, bourse.MessageOf(err))
	r.Resource = about
	if known && bourse.CodeOf(err) == bourse.CodeInternal && m.Boot.Exit != nil {
		r.Detail = m.Boot.Exit.Error // a run's record keeps internal errors for the log; this may be told
	}
	return r
}

// unfillable returns what to call the end of an order's machine, and what it is about.
// An image that was not pulled is its registry's matter.
func unfillable(order *bourse.Order, pulled bool, code bourse.Code) (reason bourse.RefusalReason, about string) {
	kind := order.Config.ImageKind()
	pulling := kind == bourse.RegistryImage && !pulled
	switch code {
	case bourse.CodeFailedPrecondition: // it was destroyed before it came to its start
		return bourse.RefusedCanceled, ""
	case bourse.CodeInsufficient:
		if kind == bourse.PollerImage {
			return bourse.RefusedResource, admit.ResourcePollers
		}
		return bourse.RefusedResource, admit.ResourceImages
	case bourse.CodeNotFound:
		if pulling {
			return bourse.RefusedNoImage, order.Config.Image
		}
	case bourse.CodeUnavailable:
		if pulling {
			return bourse.RefusedRegistry, order.Config.Image
		}
		return bourse.RefusedUnavailable, ""
	case bourse.CodeInvalid:
		if pulling {
			return bourse.RefusedImage, order.Config.Image
		}
		return bourse.RefusedProgram, ""
	default:
	}
	return bourse.RefusedDriver, ""
}

// tellWithin is how long before the end of a claim an order's machine is given up, so
// that the claim is answered with the reason.
const tellWithin = 300 * time.Millisecond

// untilOf returns when an order's machine that has not started is given up: by the
// order's deadline, and while its claim can still be answered.
func untilOf(ctx context.Context, m *bourse.Machine, order *bourse.Order) time.Time {
	until := m.CreatedAt.Add(order.Deadline())
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		if end = m.CreatedAt.Add(left - min(tellWithin, left/8)); end.Before(until) {
			return end
		}
	}
	return until
}
